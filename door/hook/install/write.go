//go:build unix

package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Read reads a settings file; nil is one that is not there. real is the file
// itself, where path is a link to it.
func Read(path string) (text []byte, real string, err error) {
	real, err = filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := os.Lstat(path); lerr == nil {
			return nil, "", fmt.Errorf("install: %s is a link to a file that is not there", path)
		}
		return nil, path, nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("install: %w", err)
	}
	f, err := os.OpenFile(real, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", fmt.Errorf("install: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, "", fmt.Errorf("install: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, "", fmt.Errorf("install: %s is no regular file", real)
	}
	text, err = io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, "", fmt.Errorf("install: %w", err)
	}
	if len(text) > MaxFile {
		return nil, "", fmt.Errorf("install: %s is larger than %d bytes", real, MaxFile)
	}
	if text == nil {
		text = []byte{}
	}
	return text, real, nil
}

// Write puts now in the place of old, which Read gave: whole, or not at all. A
// nil now removes the file. It fails where the file is no longer what was read.
func Write(real string, old, now []byte) error {
	dir := filepath.Dir(real)
	if old == nil {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("install: %w", err)
		}
		return create(real, now)
	}
	if err := unchanged(real, old); err != nil {
		return err
	}
	if now == nil {
		if err := os.Remove(real); err != nil {
			return fmt.Errorf("install: %w", err)
		}
		return syncDir(dir)
	}
	info, err := os.Stat(real)
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink > 1 {
		return fmt.Errorf("install: %s has several names (hard links), which a new file would part; remove the others first", real)
	}
	tmp, err := temporary(dir, now, info.Mode().Perm(), int(st.Uid), int(st.Gid))
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	if err := unchanged(real, old); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, real); err != nil {
		return errors.Join(fmt.Errorf("install: %w", err), os.Remove(tmp))
	}
	return syncDir(dir)
}

func unchanged(real string, old []byte) error {
	now, _, err := Read(real)
	if err == nil && (now == nil || !bytes.Equal(now, old)) {
		err = fmt.Errorf("install: %s was changed meanwhile; try again", real)
	}
	return err
}

// create makes a file that was not there.
func create(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("install: %w", err), os.Remove(path))
	}
	return syncDir(filepath.Dir(path))
}

// temporary writes a file beside the one that it will replace.
func temporary(dir string, text []byte, mode fs.FileMode, uid, gid int) (path string, err error) {
	f, err := os.CreateTemp(dir, ".cordon-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	if info, serr := f.Stat(); serr == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && (int(st.Uid) != uid || int(st.Gid) != gid) {
			err = errors.Join(err, f.Chown(uid, gid))
		}
	}
	// After the change of owner, which may take bits away.
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	return nil
}
