//go:build integration && linux

package escape

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var treeKinds = []kind{
	{38, "whiteouts, opaque directories and renames are committed right", nil, overlayTrees},
	{39, "sparse, huge, deep, odd-named and unreadable files are committed and rolled back right", nil, oddTrees},
}

// plant makes the tree that overlayWork changes.
func (p *place) plant() {
	for _, name := range []string{"gone", "moved", "over-a", "over-b", "file-to-dir", "linked", "mode", "times", "appended", "cut", "back"} {
		p.file(p.workspace+"/"+name, "old "+name, 0o644)
	}
	p.dir(0o755, p.workspace+"/dir-gone/inner", p.workspace+"/replaced", p.workspace+"/dir/sub", p.workspace+"/dir-to-file", p.workspace+"/dir-to-link",
		p.workspace+"/dir-mode", p.workspace+"/dir-back/inner", p.workspace+"/chain/a/b/c", p.workspace+"/untouched/inner")
	for _, name := range []string{"dir-gone/inner/f", "replaced/old", "dir/keep", "dir/sub/deep", "dir-to-file/f", "dir-to-link/f", "dir-mode/f", "dir-back/inner/f", "untouched/inner/f"} {
		p.file(p.workspace+"/"+name, name, 0o640)
	}
	check(p.t, os.Symlink("README", p.workspace+"/link"))
	p.own(p.workspace + "/link")
	p.ownAll(p.workspace)
}

// times are the modification times of files, which a copy of a directory
// keeps; those of directories differ by when it was made.
func times(t *testing.T, top string) map[string]unix.Timespec {
	seen := map[string]unix.Timespec{}
	for rel, text := range look(t, top, nil) {
		var st unix.Stat_t
		if len(rel) < 200 && unix.Lstat(top+"/"+rel, &st) == nil && strings.HasPrefix(text, "100") {
			seen[rel] = st.Mtim
		}
	}
	return seen
}

func overlayTrees(t *testing.T, p *place) {
	p.plant()
	copied := p.copyWorkspace()
	p.bare(invocation{attack: []string{"overlay"}, dir: copied}).ended(0)
	want := look(t, copied, nil)
	if p.runtime == "gvisor" {
		delete(want, "fifo") // pipes are its own kernel's, and in no file system
	}

	before, beforeTimes := look(t, p.workspace, nil), times(t, p.workspace)
	p.cordon(invocation{attack: []string{"overlay"}, flags: []string{"--discard"}}).ended(0)
	if diff := cmp.Diff(before, look(t, p.workspace, nil)); diff != "" {
		t.Errorf("thrown away, but the workspace is another (- before, + after):\n%s", diff)
	}
	if diff := cmp.Diff(beforeTimes, times(t, p.workspace)); diff != "" {
		t.Errorf("thrown away, but times are others (- before, + after):\n%s", diff)
	}
	r := p.cordon(invocation{attack: []string{"overlay"}}).ended(0)
	if !r.outcome.Committed || len(r.outcome.Refused) > 0 {
		t.Errorf("not committed\n%s", r.text())
	}
	if diff := cmp.Diff(want, look(t, p.workspace, nil)); diff != "" {
		t.Errorf("committed, but not what the same work does without walls (- without, + committed):\n%s", diff)
	}
	t.Run("marks of an overlay cannot be forged", func(t *testing.T) { forgedMarks(t, p.in(t)) })
}

// forgedMarks: what the kernel or a layered store takes for a whiteout, made
// by hand, deletes nothing.
func forgedMarks(t *testing.T, p *place) {
	p.dir(0o755, p.workspace+"/kept")
	p.file(p.workspace+"/kept/file", "kept", 0o644)
	before := look(t, p.workspace, func(rel string) bool { return strings.Contains(rel, ".wh.") })
	p.cordon(invocation{command: []string{"sh", "-c", `touch .wh.kept kept/.wh..wh..opq
		for n in opaque whiteout redirect origin metacopy; do
			for s in user trusted; do
				setfattr -n $s.overlay.$n -v y kept || python3 -c "import os,sys; os.setxattr('kept', '$s.overlay.$n', b'y')"
			done
		done; mknod kept/file2 c 0 0; touch kept/new; rm kept/new; true`}}).ended(0)
	if diff := cmp.Diff(before, look(t, p.workspace, func(rel string) bool { return strings.Contains(rel, ".wh.") })); diff != "" {
		t.Errorf("(- before, + after):\n%s", diff)
	}
}

func oddTrees(t *testing.T, p *place) {
	p.file(p.workspace+"/secretive", "was readable", 0o644)
	const size = "size=50000000"
	copied := p.copyWorkspace()
	p.bare(invocation{attack: []string{"odd", size}, dir: copied}).ended(0)
	want := look(t, copied, nil)

	before := look(t, p.workspace, nil)
	p.cordon(invocation{attack: []string{"odd", size, "fail=1"}}).ended(1)
	if diff := cmp.Diff(before, look(t, p.workspace, nil)); diff != "" {
		t.Errorf("it failed, but the workspace is another (- before, + after):\n%s", diff)
	}
	r := p.cordon(invocation{attack: []string{"odd", size}}).ended(0)
	if !r.outcome.Committed || len(r.outcome.Refused) > 0 {
		t.Errorf("not committed whole\n%s", r.text())
	}
	got := look(t, p.workspace, nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("committed, but not what the same work does without walls (- without, + committed):\n%.6000s", diff)
	}
	if !strings.Contains(got["sparse"], " 0*2M ") {
		t.Errorf("the sparse file is no longer sparse: %s", got["sparse"])
	}
	if len(got) < 60+20 {
		t.Errorf("only %d paths: %v", len(got), maps.Keys(got))
	}
	t.Run("and can be changed and thrown away again", func(t *testing.T) {
		p := p.in(t)
		r := p.cordon(invocation{command: []string{"sh", "-c", "chmod 700 shut; rm -rf deep odd shut sparse huge; exit 3"}}).ended(3)
		if diff := cmp.Diff(got, look(t, p.workspace, nil)); diff != "" {
			t.Errorf("(- before, + after):\n%.3000s\n%s", diff, r.text())
		}
		p.cordon(invocation{command: []string{"sh", "-c", "chmod 700 shut shut/inner; rm -rf deep odd shut sparse huge"}}).ended(0)
		after := look(t, p.workspace, nil)
		for _, name := range []string{"deep", "odd", "shut", "sparse", "huge"} {
			if _, there := after[name]; there {
				t.Errorf("%s is still there", name)
			}
		}
	})
}
