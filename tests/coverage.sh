#!/bin/sh
# coverage.sh BUILD [FILE]: reads what a build with --coverage counted and prints the lines that ran, by file,
# by folder and by group; fails where too few did. With FILE: those of its lines that did not run.
#
# A source that was compiled more than once, or into a test, ran where any of its objects did. The CUDA plugin
# (BUILD/pic) is not counted, as it runs on GPUs alone; the emulated build of its sources is. Only gcov is needed.
find "$1" -name '*.gcno' ! -path '*/pic/*' | LC_ALL=C sort | LC_ALL=C xargs gcov -t -r 2> /dev/null | LC_ALL=C awk -v show="$2" '
    function group_of(file) {
        if (file ~ /^traces\// || file ~ /^core\/(csv|json|json_fields|json_locate|parse)\.c/ ||
            file ~ /^sim\/(plan\/plan_read|model\/model_config|what_if)\.c/ ||
            file ~ /^exec\/(checkpoint\/checkpoint_(read|manifest|index|table|check|span|sum)|huggingface\/safetensors(_header)?)\.c/ ||
            file ~ /^exec\/(data\/data(_file|_megatron)?|huggingface\/hf_(config|names|names_load)|train\/log_file|cuda\/gemm_file)\.c/ ||
            file ~ /^(plots\/plot_tables|profile\/journal)\.c/)
            return "readers"
        if (file ~ /^sim\/schedule\/memory_/) return "memory planner"
        if (file ~ /^sim\/schedule\/(schedule|pipeline_order)/) return "schedule"
        if (file ~ /^tune\/inter_stage/) return "inter-stage"
        return ""
    }
    function row(name, n, n_ran, least,    bound) {
        bound = least ? sprintf("   %d %% wanted%s", least, 100 * n_ran < least * n ? ": BELOW" : "") : ""
        printf "%5.1f %%  %6d of %6d lines  %-14s%s\n", 100 * n_ran / n, n_ran, n, name, bound
        if (least && 100 * n_ran < least * n) bad = 1
    }
    /^ *-: *0:Source:/ { file = $0; sub(/.*:Source:/, "", file); next }
    file !~ /^(core|traces|sim|tune|exec|profile|plots)\// { next }
    # "   count:  line:text"; of a template once more for each instance
    match($0, /^ *([0-9]+\*?|#####|=====): *[0-9]+:/) {
        split(substr($0, 1, RLENGTH), part, ":")
        at = file ":" (part[2] + 0)
        if (!(at in runs)) { runs[at] = 0; lines[file]++ }
        if (part[1] !~ /[#=]/ && !runs[at]) { runs[at] = 1; ran[file]++ }
        if (file == show) text[part[2] + 0] = substr($0, RLENGTH + 1)
        last = part[2] + 0 > last ? part[2] + 0 : last
    }
    END {
        if (show != "") {
            for (i = 1; i <= last; i++) if (i in text && !runs[show ":" i]) printf "%6d %s\n", i, text[i]
            exit
        }
        for (file in lines) {
            folder = file; if (!sub(/^exec\/cuda\/.*/, "exec/cuda", folder)) sub(/\/.*/, "", folder)
            n_folder[folder] += lines[file]; ran_folder[folder] += ran[file]
            group = group_of(file)
            if (group != "") { n_group[group] += lines[file]; ran_group[group] += ran[file] }
            n += lines[file]; n_ran += ran[file]
            if (ran[file] == lines[file]) n_whole++
            else printf "%5.1f %%  %6d of %6d lines  %s\n", 100 * ran[file] / lines[file], ran[file], lines[file], file | "sort -n"
        }
        close("sort -n")
        printf "100.0 %%  %d more files\n\n", n_whole
        n_names = split("core traces sim tune exec exec/cuda profile plots", names, " ")
        for (i = 1; i <= n_names; i++) row(names[i], n_folder[names[i]], ran_folder[names[i]], 0)
        print ""
        n_names = split("readers,memory planner,schedule,inter-stage", names, ",")
        for (i = 1; i <= n_names; i++) row(names[i], n_group[names[i]], ran_group[names[i]], 97)
        row("all", n, n_ran, 90)
        exit bad
    }'
