#!/bin/sh
# Makes a Debian package of a folder that `make install PREFIX=/usr DESTDIR=FOLDER` has filled.
#
#   deb.sh FOLDER VERSION DATE PACKAGE...     writes mist_VERSION_ARCHITECTURE.deb beside the folder
#
# It depends on the PACKAGEs, programs that the tools start, and on the libraries that the tools are linked with,
# which dpkg-shlibdeps finds. The same tools give the same bytes. The CUDA plugin, if it is there, asks for nothing:
# it is opened where CUDA's libraries are.
set -eu
folder=$(cd "$1" && pwd) version=$2 date=$3
shift 3
architecture=$(dpkg --print-architecture)
doc=$folder/usr/share/doc/mist

find "$folder/usr" -type f -perm -u+x -exec strip --strip-unneeded {} +
mkdir -p "$doc" "$folder/DEBIAN"
cp LICENSE "$doc/copyright"
find "$folder/usr/share/man" -type f -exec gzip -9n {} +

# dpkg-shlibdeps wants a source package around it.
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
mkdir "$source/debian"
printf 'Source: mist\n\nPackage: mist\nArchitecture: any\n' > "$source/debian/control"
libraries=$(cd "$source" && dpkg-shlibdeps --warnings=0 -O "$folder"/usr/bin/mist-* | sed -n 's/^shlibs:Depends=//p')

cat > "$folder/DEBIAN/control" << EOT
Package: mist
Version: $version
Architecture: $architecture
Maintainer: the authors of Mist <mist@localhost>
Installed-Size: $(du -sk --apparent-size "$folder/usr" | cut -f 1)
Depends: $libraries$(printf ', %s' "$@")
Section: science
Priority: optional
Description: finds, predicts and runs the fastest way to train a transformer
 Mist measures a cluster, searches data, tensor and pipeline parallelism
 together with memory optimisations, predicts time and memory of the best
 plan, and trains it.
EOT
SOURCE_DATE_EPOCH=$(date -u -d "$date" +%s)
export SOURCE_DATE_EPOCH
find "$folder" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
chmod -R u+rwX,go+rX,go-w "$folder"
dpkg-deb --root-owner-group --build "$folder" "$folder/../mist_${version}_$architecture.deb" > /dev/null
