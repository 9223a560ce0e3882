package shell

import (
	"slices"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

// deletions are the deletions of a command: the path, "?" where it is
// doubtful, the operation.
func deletions(src string) []string {
	var out []string
	for _, e := range lower(src) {
		if e.Kind != cordon.Delete {
			continue
		}
		s := strings.TrimPrefix(resolved(e), testWS+"/")
		if e.Recursive {
			s += " and below"
		}
		if e.Op != "" {
			s += " " + e.Op
		}
		if e.Doubtful {
			s += "?"
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func TestFindDeletesWhatReachesTheAction(t *testing.T) {
	for _, row := range []struct {
		name, src string
		want      []string
	}{
		{"a name", `find . -name '*.swp' -delete`, []string{"**/*.swp"}},
		{"one of two names", `find lib \( -name '*.a' -o -name '*.so' \) -delete`, []string{"lib/**/*.a", "lib/**/*.so"}},
		{"two branches with an action each", `find . -name '*.a' -delete -o -name '*.b' -delete`, []string{"**/*.a", "**/*.b"}},
		{"a name and an age", `find . -name '*.gz' -mtime +9 -delete`, []string{"**/*.gz"}},
		{"an age alone", `find . -type f -mtime +9 -delete`, []string{"**?"}},
		{"a size, by xargs", `find . -size +9M -print0 | xargs -0 rm`, []string{"**?"}},
		{"the first level", `find . -maxdepth 1 -type f -exec rm {} +`, []string{"**?"}},
		{"the end of a path", `find . -path '*/cache/old.db' -delete`, []string{"**/old.db"}},
		{"the middle of a path", `find . -path '*/cache/*' -delete`, []string{"**?"}},
		{"what holds nothing", `find . -type d -empty -delete`, []string{"** empty?"}},
		{"directories that hold nothing", `find . -type d -exec rmdir {} +`, []string{testWS + " empty", "** empty"}},
		{"all but a name", `find . -not -name keep -delete`, []string{testWS + " and below"}},
		{"all but some names", `find . ! \( -name a -o -name b \) -delete`, []string{testWS + " and below"}},
		{"the other branch of a name", `find . -name keep -o -delete`, []string{testWS + " and below"}},
		{"all but what is pruned", `find . -name keep -prune -o -delete`, []string{testWS + " and below"}},
		{"a name or anything", `find . \( -name keep -o -true \) -delete`, []string{testWS + " and below"}},
		{"files that are not named so", `find . -type f ! -iname '*.md' -delete`, []string{"**"}},
		{"not not a name", `find . ! ! -name x.o -delete`, []string{"**/x.o"}},
		{"a list after a comma", `find . -name x -print , -delete`, []string{testWS + " and below"}},
		{"a group that is never closed", `find . \( -name x -delete`, []string{"**/x"}},
		{"a group closed too often", `find . -name x \) -delete`, []string{testWS + " and below"}},
		{"an age elsewhere is no better", `find / -atime +400 -delete`, []string{"/**"}},
		{"an age after a change of directory", `cd / && find . -atime +400 -delete`, []string{"/**"}},
		{"an age in the home", `find ~ -atime +400 -delete`, []string{testHome + "/**"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := deletions(row.src); !slices.Equal(got, row.want) {
				t.Errorf("%s\n got %q\nwant %q", row.src, got, row.want)
			}
		})
	}
}

func TestFindBoundsItsNesting(t *testing.T) {
	src := "find . " + strings.Repeat(`\( ! `, 300) + "-name x -delete"
	if got := deletions(src); len(got) == 0 {
		t.Error("a deletion behind many groups is lost")
	}
}
