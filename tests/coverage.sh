#!/bin/sh
# coverage.sh BUILD [FILE]: reads what a build with --coverage counted and prints the lines that ran
# by file, by folder and by group; fails where too few did. With FILE: the lines of it that none ran.
# A source that was compiled more than once, or into a test, ran where any of its objects did.
# Only what gcov of gcc prints is needed; an object without counts did not run, which it says on stderr.
find "$1" -name '*.gcno' | LC_ALL=C sort | LC_ALL=C xargs gcov -t -r 2> /dev/null | LC_ALL=C awk -v show="$2" '
    function group_of(file) {
        if (file ~ /^traces\// || file ~ /^core\/(csv|json|json_locate|parse)\.c/ ||
            file ~ /^sim\/(plan_read|plan_fields|model_config|layer_layout|what_if)\.c/ ||
            file ~ /^exec\/(checkpoint_(read|manifest|index|table|check)|safetensors|safetensors_header)\.c/ ||
            file ~ /^exec\/(data|data_file|data_megatron|hf_config|hf_names|hf_names_load|cuda\/gemm_file)\.c/ ||
            file ~ /^(plots\/plot_tables|profile\/journal)\.c/)
            return "readers"
        if (file ~ /^sim\/memory_/) return "memory planner"
        if (file ~ /^sim\/(schedule|pipeline_order)/) return "schedule"
        if (file ~ /^tune\/inter_stage/) return "inter-stage"
        return ""
    }
    function row(name, n, n_ran, least) {
        printf "%5.1f %% of %6d lines  %-16s%s\n", n ? 100 * n_ran / n : 0, n, name,
            least && 100 * n_ran < least * n ? sprintf("  BELOW %d %%", least) : ""
        if (least && 100 * n_ran < least * n) bad = 1
    }
    /^ *-: *0:Source:/ { file = $0; sub(/.*:Source:/, "", file); next }
    file !~ /^(core|traces|sim|tune|exec|profile|plots)\// { next }
    # "   count:  line:text"; the same line once more for each instance of a template
    match($0, /^ *([0-9]+\*?|#####|=====): *[0-9]+:/) {
        split(substr($0, 1, RLENGTH), part, ":")
        at = file ":" (part[2] + 0)
        if (!(at in runs)) { runs[at] = 0; lines[file]++ }
        if (part[1] !~ /[#=]/ && !runs[at]) { runs[at] = 1; ran[file]++ }
        text[at] = $0
    }
    END {
        for (at in text) if (file_of(at) == show && !runs[at]) print text[at] | "sort -t: -k2n"
        if (show != "") exit
        for (file in lines) {
            folder = file; sub(/\/[^\/]*$/, "", folder)
            n_folder[folder] += lines[file]; ran_folder[folder] += ran[file]
            group = group_of(file)
            if (group != "") { n_group[group] += lines[file]; ran_group[group] += ran[file] }
            n += lines[file]; n_ran += ran[file]
        }
        for (file in lines) printf "%5.1f %% of %6d lines  %s\n", 100 * ran[file] / lines[file], lines[file], file | "sort -n"
        close("sort -n")
        print ""
        for (folder in n_folder) row(folder, n_folder[folder], ran_folder[folder], 0)
        print ""
        for (group in n_group) row(group, n_group[group], ran_group[group], 97)
        row("all", n, n_ran, 90)
        exit bad
    }
    function file_of(at) { sub(/:.*/, "", at); return at }'
