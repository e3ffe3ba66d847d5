#!/bin/sh
# coverage.sh BUILD: reads what a build with --coverage counted, prints the lines that ran by file
# and by folder, and fails where too few did. Only what gcov of gcc prints is needed.
build=$1
for notes in $(find "$build" -name '*.gcno' | grep -v "^$build/\(pic\|tests\|gpu\)/"); do
    case $notes in "$build"/emulated/tests/*) continue ;; esac
    # without counts nothing of it ran: gcov then says 0 %
    LC_ALL=C gcov -n -r "$notes" 2> /dev/null
done | awk '
    /^File / { file = $2; gsub(/\047/, "", file) }
    /^Lines executed:/ && file ~ /^(core|traces|sim|tune|exec|profile|plots)\/.*\.c$/ {
        split($2, part, ":"); sub(/%.*/, "", part[2])
        lines[file] = $4; ran[file] = $4 * part[2] / 100
        file = ""
    }
    function group_of(file) {
        if (file ~ /^traces\// || file ~ /^core\/(csv|json|parse)/ || file ~ /^sim\/(plan_read|model_config|what_if)/ ||
            file ~ /^exec\/(checkpoint_(read|manifest|index)|safetensors|data_file|hf_names)/)
            return "readers"
        if (file ~ /^sim\/memory_planner/) return "memory planner"
        if (file ~ /^sim\/schedule_/) return "schedule"
        if (file ~ /^tune\/inter_stage/) return "inter-stage"
        return ""
    }
    function row(name, n, n_ran, least) {
        printf "%-42s %6d of %6d lines  %5.1f %%%s\n", name, n_ran + 0.5, n, n ? 100 * n_ran / n : 0,
            least && 100 * n_ran < least * n ? sprintf("  BELOW %d", least) : ""
        if (least && 100 * n_ran < least * n) bad = 1
    }
    END {
        for (file in lines) {
            folder = file; sub(/\/[^\/]*$/, "", folder)
            n_folder[folder] += lines[file]; ran_folder[folder] += ran[file]
            group = group_of(file)
            if (group != "") { n_group[group] += lines[file]; ran_group[group] += ran[file] }
            n += lines[file]; n_ran += ran[file]
        }
        for (file in lines) table = table sprintf("%5.1f %% of %5d  %s\n", 100 * ran[file] / lines[file], lines[file], file)
        command = "sort -n"; printf "%s", table | command; close(command)
        print ""
        for (folder in n_folder) row(folder, n_folder[folder], ran_folder[folder], 0)
        for (group in n_group) row(group, n_group[group], ran_group[group], 97)
        row("all", n, n_ran, 90)
        exit bad
    }'
