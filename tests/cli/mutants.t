#!/bin/sh
# Every mutant of `make mutants` can still be made: the text that it replaces is there, once.
. tests/cli/lib.sh

begin 'the mutants are those of this tree'
run sh -c "cd '$root' && tests/mutants/run -n"
expect_exit 0
expect_stdout_empty
finish
