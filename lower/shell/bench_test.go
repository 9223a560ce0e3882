package shell

import (
	"context"
	"strings"
	"testing"
)

// oneKB is a script as agents write them, about 1 KB long.
const oneKB = `set -euo pipefail
cd src && ls -la | head -20
export NODE_ENV=test FOO="bar baz"
for f in *.py; do echo "$f"; wc -l < "$f"; done
if [ -d build ]; then rm -rf build; fi
mkdir -p build && cp -r data/ build/
version=$(git describe --tags --always)
echo "building ${version#v} at $(date +%F)" | tee build/log.txt
find . -name '*.pyc' -not -path './node_modules/*' -delete
grep -rn "TODO" --include='*.go' . | sort | uniq -c | sort -rn | head
cat > build/config.json <<E
{"version": "$version", "env": "$NODE_ENV", "features": ["a", "b", "c"]}
E
curl -fsSL https://api.github.com/repos/x/y/releases -o build/rel.json
jq -r '.[].tag_name' build/rel.json | while read -r t; do
  case "$t" in v1.*) echo "old $t";; *) echo "new $t";; esac
done
npm ci && npm run build -- --mode production
pytest -q tests/test_a.py || { echo failed; exit 1; }
tar czf build/out.tgz -C build config.json log.txt
sed -i 's/foo/bar/g' src/main.py; awk -F, '{s+=$2} END {print s}' data/a.csv
git add -A && git commit -m "build: $version" && git push origin main
`

func BenchmarkLower1KB(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(oneKB)))
	env := testEnv()
	for b.Loop() {
		Lower(context.Background(), oneKB, env)
	}
}

func BenchmarkLowerOneCommand(b *testing.B) {
	b.ReportAllocs()
	env := testEnv()
	for b.Loop() {
		Lower(context.Background(), "go test ./... 2>&1 | tail -20", env)
	}
}

func BenchmarkLower256KB(b *testing.B) {
	b.ReportAllocs()
	// Without the cd: 200 of them would nest the directory as deep.
	src := strings.Repeat(strings.Replace(oneKB, "cd src", "ls src", 1), maxSize/len(oneKB))
	b.SetBytes(int64(len(src)))
	env := testEnv()
	for b.Loop() {
		Lower(context.Background(), src, env)
	}
}

func BenchmarkTableIndex(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		m := make(map[string]*entry, 512)
		files, _ := programFiles.ReadDir("programs")
		for _, f := range files {
			t, _ := programFiles.ReadFile("programs/" + f.Name())
			index(string(t), m)
		}
	}
}
