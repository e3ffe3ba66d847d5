# shellcheck shell=sh disable=SC2154
# Where tests/gpu/run finds programs and libraries. Sourced; needs $root and $work.
# Gives MIST_GPU_BIN, MIST_GPU_TESTS, MIST_GPU_FROM, MIST_GPU_VERSION, MIST_GPU_IDS, MIST_GPU_LIBRARIES, and
# MIST_GPU_HANDED, the results of call B, if they were brought along.
packed=$root/.gpu/mist-gpu.tar.gz
MIST_GPU_HANDED=
for found in "${out:-$root/.gpu}/results-B.tar.gz" "$root/.gpu/results-B.tar.gz"; do
    [ -z "$MIST_GPU_HANDED" ] && [ -f "$found" ] && MIST_GPU_HANDED=$found
done
if [ -f "$packed" ]; then
    mkdir -p "$work/pack" && tar xzf "$packed" -C "$work/pack" && pack=$work/pack MIST_GPU_FROM=.gpu/mist-gpu.tar.gz
elif [ -d "$root/.gpu/pack" ]; then
    pack=$root/.gpu/pack MIST_GPU_FROM=.gpu/pack
else
    pack=
fi
if [ "$pack" ]; then
    MIST_GPU_BIN=$pack/bin MIST_GPU_TESTS=$pack/tests MIST_GPU_VERSION=$pack/VERSION text=$pack/text
    OPAL_PREFIX=$pack/ompi
    for folder in "$pack"/ompi/lib/*/pmix2; do PMIX_PREFIX=$folder; done
    PATH=$pack/ompi/bin:$PATH
    export OPAL_PREFIX PMIX_PREFIX PATH
else
    MIST_GPU_BIN=${MIST_BUILD:-$root/build}
    case $MIST_GPU_BIN in /*) ;; *) MIST_GPU_BIN=$PWD/$MIST_GPU_BIN ;; esac
    MIST_GPU_TESTS=$MIST_GPU_BIN/gpu MIST_GPU_VERSION=/dev/null MIST_GPU_FROM=$MIST_GPU_BIN
    text=$work/text
    cat /usr/share/common-licenses/* > "$text" 2> /dev/null || cat "$root"/core/*.c > "$text"
fi
# What is trained on, whatever the vocabulary: the bytes of a text as ids of 16 bits.
MIST_GPU_IDS=$work/text.u16
tr '\n' ' ' < "$text" | LC_ALL=C sed 's/./&\x00/g' > "$MIST_GPU_IDS"

# Folders with CUDA's libraries: the toolkit's, then those of Python's packages; of CUDA 12 or 13, as the plugin needs.
site=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2> /dev/null)
MIST_GPU_LIBRARIES=${pack:+$pack/lib}
for library in libcublasLt.so.13 libcublasLt.so.12 libnccl.so.2 libcupti.so.13 libcupti.so.12 libcudnn.so.9 \
    libnvrtc.so.13 libnvrtc.so.12; do
    for folder in ${MIST_CUDA_LIBDIR:-} "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda*/lib64 \
        /usr/local/cuda*/targets/*/lib /usr/local/cuda*/extras/CUPTI/lib64 "$site"/nvidia/*/lib \
        /opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib /usr/lib/x86_64-linux-gnu; do
        [ -e "$folder/$library" ] || continue
        case :$MIST_GPU_LIBRARIES: in
        *:"$folder":*) ;;
        *) [ "$folder" = /usr/lib/x86_64-linux-gnu ] || MIST_GPU_LIBRARIES=${MIST_GPU_LIBRARIES:+$MIST_GPU_LIBRARIES:}$folder ;;
        esac
        break
    done
done
MIST_CUDA_PLUGIN=${MIST_CUDA_PLUGIN:-$MIST_GPU_BIN/libmist_cuda.so}
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive LC_ALL=C
TORCHINDUCTOR_CACHE_DIR=$work/inductor TRITON_CACHE_DIR=$work/triton
export MIST_GPU_BIN MIST_GPU_TESTS MIST_GPU_FROM MIST_GPU_VERSION MIST_GPU_IDS MIST_GPU_LIBRARIES MIST_CUDA_PLUGIN \
    MIST_GPU_HANDED OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMP_WAIT_POLICY LC_ALL \
    TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR
