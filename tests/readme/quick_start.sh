#!/bin/sh
# Does what a newcomer does with the README's quick start: the shell lines are
# run as they stand there, the program is the one that stands there.
#
#   quick_start.sh <project folder> <the lastdoor tool> <example_quick_start>
set -eu
project=$1
tool=$2
program=$3

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# block <language> <file>: the first fenced block of that language after the
# heading "Quick start".
block() {
  awk -v open="\`\`\`$1" '
    /^## / { here = ($0 == "## Quick start") }
    here && $0 == open { inside = 1; next }
    inside && $0 == "```" { exit }
    inside { print }
  ' "$project/README.md" >"$2"
  [ -s "$2" ] || { echo "README.md has no $1 block in Quick start"; exit 1; }
}

block cpp quick_start.cpp
diff -u "$project/examples/quick_start.cpp" quick_start.cpp || {
  echo "the README's program is not examples/quick_start.cpp"
  exit 1
}

mkdir bin
ln -s "$tool" bin/lastdoor
PATH="$folder/bin:$PATH"
export PATH
block sh quick_start.sh
sh -eu quick_start.sh

"$program" >first.txt
cat first.txt
grep -q '^token 1: sold 3$' first.txt
[ "$(sqlite3 shop.db "SELECT qty FROM inventory WHERE sku = '1001'")" = 2 ]

# Two are left: the second run must refuse to sell three, and say why.
if "$program" >second.txt; then
  echo "sold three of two"
  exit 1
fi
cat second.txt
grep -q 'precondition_failed' second.txt

# And the guard: nobody writes without a token.
if sqlite3 shop.db "UPDATE inventory SET qty = 99" 2>guard.txt; then
  echo "the guard let an unfenced write through"
  exit 1
fi
cat guard.txt
grep -q 'lastdoor' guard.txt
[ "$(sqlite3 shop.db "SELECT qty FROM inventory WHERE sku = '1001'")" = 2 ]
