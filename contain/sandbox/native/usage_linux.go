package native

import (
	"fmt"
	"io"
	"os"

	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/meter"
	"golang.org/x/sys/unix"
)

// tmpBytes is what the file system of the temporary directories holds.
func tmpBytes(fd int) int64 {
	var st unix.Statfs_t
	if fd < 0 || unix.Fstatfs(fd, &st) != nil {
		return 0
	}
	files := int64(st.Files-st.Ffree) - rootFiles
	return max(int64(st.Blocks-st.Bfree)*st.Bsize, files*meter.MinFileBytes, 0)
}

// rootFiles is more than the new root's own files and directories.
const rootFiles = 128

// anonymous sums the memory of processes that no file backs.
func anonymous(pids []int) int64 {
	var pages int64
	for _, pid := range pids {
		f, err := os.Open(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(f)
		f.Close()
		var size, resident, shared int64
		if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err == nil {
			pages += resident - shared
		}
	}
	return pages * int64(os.Getpagesize())
}
