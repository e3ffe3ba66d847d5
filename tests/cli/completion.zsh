# What zsh offers behind a line that is typed so far, one candidate a line:
#
#   zsh -f completion.zsh SCRIPT LINE
#
# Completion needs zle, and zle a terminal: an interactive zsh at one of its own (zsh/zpty) completes the line. All
# candidates go through compadd, which notes them here.
zmodload zsh/zpty
folder=$(mktemp -d)
cat > $folder/setup << EOT
PROMPT=
autoload -Uz compinit && compinit -D -u
source ${(q)1}
compadd() {
    local -a found
    if [[ \${@[1,(i)(-|--)]} != *-[a-zA-Z]#(O|A|D)\ * ]]; then
        builtin compadd -A found "\$@"
        (( \$#found )) && print -l -- \$found >> $folder/offered
    fi
    builtin compadd "\$@"
}
setopt extended_glob
done_line() { print > $folder/done }
comppostfuncs=(done_line)
bindkey '^I' complete-word
zle-line-init() { : > $folder/ready }
zle -N zle-line-init
EOT
zpty shell zsh -f -i
zpty -w shell "source $folder/setup"
while [[ ! -e $folder/ready ]]; do sleep 0.02; done
zpty -w -n shell "$2"$'\t'
while [[ ! -e $folder/done ]]; do sleep 0.02; done
[[ -e $folder/offered ]] && sed 's/=$//' $folder/offered | sort -u
zpty -d shell
rm -rf $folder
