#!/bin/sh
# Completion by bash, zsh and fish: what each shell offers behind a line that is typed so far.
. tests/cli/lib.sh

for tool in $TOOLS; do
    for shell in bash zsh fish; do "$MIST_BUILD/$tool" --completion=$shell > "$scratch/io/$tool.$shell"; done
    "$MIST_BUILD/$tool" --help | sed -n 's/^  \(-., \|    \)--\([a-z0-9-]*\).*/--\2/p' | sort > "$scratch/io/$tool.options"
done

# offered_SHELL LINE: what the shell offers, one a line, sorted.
offered_bash() {
    bash -c '. "$1"; read -ra COMP_WORDS <<< "$2"; [[ $2 == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "_${COMP_WORDS[0]//-/_}"; printf "%s\n" "${COMPREPLY[@]}"' \
        bash "$scratch/io/${1%% *}.bash" "$1" | sort
}
offered_fish() {
    HOME=$scratch/io fish --no-config -c 'source $argv[1]; complete -C $argv[2]' "$scratch/io/${1%% *}.fish" "$1" | cut -f 1 | sort
}
offered_zsh() {
    timeout 30 zsh -f "$root/tests/cli/completion.zsh" "$scratch/io/${1%% *}.zsh" "$1" | sort
}

# offers LINE WORD...: in every shell that is there, exactly these words.
offers() {
    line=$1
    shift
    for shell in bash zsh fish; do
        begin "$shell: $line"
        command -v $shell > /dev/null || { skip "$shell is missing"; continue; }
        run offered_$shell "$line"
        printf '%s\n' "$@" | sort > "$scratch/io/wanted"
        cmp -s "$out" "$scratch/io/wanted" ||
            fail "offered, < and wanted, >: $(diff "$out" "$scratch/io/wanted" | grep '^[<>]' | head -n 5)"
        expect_stderr_empty
        nothing_written
    done
}

for tool in $TOOLS; do
    # shellcheck disable=SC2046
    offers "$tool --" $(cat "$scratch/io/$tool.options")
done
offers 'mist-sim --fr' --framework --from-args
offers 'mist-sim --framework ' plan ours megatron deepspeed torchtitan torchtitan-compiled megatron-2021 deepspeed-2021 llm-foundry
offers 'mist-sim --framework meg' megatron megatron-2021
offers 'mist-exec --graphs o' on off
offers 'mist-plot --no-c' --no-color
# the kinds of pictures, then files
# shellcheck disable=SC2046
offers 'mist-plot ' $("$MIST_BUILD/mist-plot" pie x 2>&1 | sed 's/.*expected //; s/,//g; s/ or / /')
offers 'mist-plot se' sensitivity
offers 'mist-plot sensitivity timel' timeline.csv
offers 'mist-plot -q differences timel' timeline.csv
offers 'mist-plot -o timel' timeline.csv
offers 'mist-tune --completion ' bash zsh fish
offers 'mist-sim plan.json --compare timel' timeline.csv
offers 'mist-sim plan2' plan2.json
finish
