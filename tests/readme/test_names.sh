#!/bin/sh
# The README proves its guarantees by naming tests: each of them must exist.
#
#   test_names.sh <project folder>
set -eu
project=$1
missing=0
found=0
for name in $(grep -oE '`[A-Z][A-Za-z]+\.[A-Z][A-Za-z0-9_]+`' \
    "$project/README.md" | tr -d '`' | sort -u); do
  suite=${name%%.*}
  test=${name#*.}
  found=$((found + 1))
  # TEST_F(Suite, Name), TYPED_TEST_P, …; the name may stand on the next line.
  if ! cat "$project"/tests/*/*.cpp "$project"/include/lastdoor/testing/*.hpp |
      tr '\n' ' ' | grep -qE "$suite, *$test\)"; then
    echo "README.md names $name, which is no test"
    missing=1
  fi
done
[ "$found" -gt 5 ] || { echo "README.md names no tests"; exit 1; }
exit $missing
