package embedded

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Names of files in a data directory. Snapshots and logs have a zxid of 16 hexadecimal digits after
// the prefix.
const (
	lockName       = "lock"
	markName       = "acknowledged"
	logPrefix      = "log-"
	snapshotPrefix = "snapshot-"
	unfinished     = ".tmp" // of a file that isn't complete
)

// recordSize is the approximate size of a snapshot's records.
const recordSize = 256 << 10

// A directory is a data directory that this process has locked. It has the newest snapshot and the
// logs of later transactions. Other files are left alone.
type directory struct {
	path string
	lock io.Closer
	sync func(*os.File) error
	mark *os.File // up to which transaction clients were answered (see acknowledge)
}

// openDirectory creates the directory if it does not exist, and locks it.
func openDirectory(path string, sync func(*os.File) error) (*directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDirectory(path)
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("%s: another server uses this directory", path)
	}

	if err != nil {
		return nil, err
	}
	dir := &directory{path: path, lock: lock, sync: sync}
	if err := dir.removeUnfinished(); err != nil {
		lock.Close()
		return nil, err
	}

	return dir, nil
}

func (dir *directory) close() {
	if dir.mark != nil {
		dir.mark.Close()
	}
	dir.lock.Close()
}

// acknowledge notes that transactions up to zxid have reached the disk, before clients get their
// answers. The note can be lost with the machine. That does no harm, because it is only a lower
// bound for what a log must have. Without the note, a log whose end is missing would look complete.
func (dir *directory) acknowledge(zxid int64) error {
	note := fmt.Sprintf("%016x ", uint64(zxid))
	note += fmt.Sprintf("%08x\n", checksum([]byte(note)))
	if dir.mark != nil {
		_, err := dir.mark.WriteAt([]byte(note), 0)
		return err
	}

	path := filepath.Join(dir.path, markName)
	file, err := os.OpenFile(path+unfinished, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = file.WriteString(note); err == nil {
		err = dir.sync(file)
	}

	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+unfinished, path); err != nil {
		return err
	}

	if dir.mark, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return err
	}
	return syncDirectory(dir.path)
}

// acknowledged returns up to which transaction clients were answered, or -1 if that isn't known.
func (dir *directory) acknowledged() (zxid int64, err error) {
	path := filepath.Join(dir.path, markName)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	} else if err != nil {
		return 0, err
	}

	note, sum, _ := strings.Cut(string(content), " ")
	parsed, err := strconv.ParseUint(note, 16, 63)
	if err != nil || sum != fmt.Sprintf("%08x\n", checksum([]byte(note+" "))) {
		return 0, fmt.Errorf("%s is damaged: restore the directory, or remove it to begin without data", path)
	}
	return int64(parsed), nil
}

// removeUnfinished removes the files that a former process was writing when it ended.
func (dir *directory) removeUnfinished() error {
	entries, err := os.ReadDir(dir.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), unfinished)
		if _, ours := parseName(name); !ok || !ours {
			continue
		}
		if err := os.Remove(filepath.Join(dir.path, e.Name())); err != nil {
			return err
		}
	}

	return nil
}

// A stored file is a snapshot or a log.
type stored struct {
	name string
	kind string
	zxid int64
}

// files returns the snapshots and logs, oldest first.
func (dir *directory) files() (snapshots, logs []stored, err error) {
	entries, err := os.ReadDir(dir.path)
	if err != nil {
		return nil, nil, err
	}

	for _, e := range entries {
		f, ok := parseName(e.Name())
		switch {
		case !ok:
		case f.kind == kindSnapshot:
			snapshots = append(snapshots, f)
		default:
			logs = append(logs, f)
		}
	}

	byZxid := func(a, b stored) int { return cmp.Compare(a.zxid, b.zxid) }
	slices.SortFunc(snapshots, byZxid)
	slices.SortFunc(logs, byZxid)
	return snapshots, logs, nil
}

func fileName(kind string, zxid int64) string {
	prefix := logPrefix
	if kind == kindSnapshot {
		prefix = snapshotPrefix
	}
	return fmt.Sprintf("%s%016x", prefix, zxid)
}

// parseName returns the file of this name, and reports whether it is a snapshot or a log.
func parseName(name string) (stored, bool) {
	kind, digits := kindLog, ""
	var ok bool
	if digits, ok = strings.CutPrefix(name, logPrefix); !ok {
		kind = kindSnapshot
		if digits, ok = strings.CutPrefix(name, snapshotPrefix); !ok {
			return stored{}, false
		}
	}
	zxid, err := strconv.ParseInt(digits, 16, 64)
	return stored{name, kind, zxid}, err == nil && fileName(kind, zxid) == name
}

// load returns the state in the files, or nil if there are none. torn is the size of an incomplete
// last record.
func (dir *directory) load() (st *state, torn int, err error) {
	snapshots, logs, err := dir.files()
	if err != nil {
		return nil, 0, err
	}
	promised, err := dir.acknowledged()
	switch {
	case err != nil:
		return nil, 0, err
	case len(snapshots)+len(logs) == 0 && promised > 0:
		return nil, 0, fmt.Errorf("%s: all snapshots and logs are missing, and clients were answered: restore the directory, or remove it to begin without data",
			dir.path)
	case len(snapshots) > 0 && promised < 0:
		return nil, 0, fmt.Errorf("%s is missing, which says what clients were answered: restore the directory, or remove it to begin without data",
			filepath.Join(dir.path, markName))
	}

	if len(snapshots) == 0 {
		if len(logs) > 0 {
			return nil, 0, fmt.Errorf("%s: there is a log and no snapshot: restore the directory, or remove it to begin without data",
				filepath.Join(dir.path, logs[0].name))
		}
		return nil, 0, nil
	}

	newest := snapshots[len(snapshots)-1]
	l := newLoader()
	if _, err := dir.read(newest, newest.zxid, l.entries); err != nil {
		return nil, 0, err
	}
	if !l.complete {
		return nil, 0, dir.damaged(newest, "the snapshot has no end")
	}

	l.tree.zxid = newest.zxid

	logs = slices.DeleteFunc(logs, func(f stored) bool { return f.zxid < newest.zxid })
	for i, f := range logs {
		// A new log is begun only after the log before it has reached the disk.
		if torn > 0 {
			return nil, 0, dir.damaged(logs[i-1], "its last record was not written to its end, though another log follows")
		}
		if torn, err = dir.read(f, l.tree.zxid, l.transactions); err != nil {
			return nil, 0, err
		}
	}

	switch {
	case l.tree.zxid >= promised:
		return &l.state, torn, nil
	case torn > 0:
		return nil, 0, dir.damaged(logs[len(logs)-1], fmt.Sprintf("its last record, of which %d bytes are left, is not as it was written, and clients were answered", torn))
	}

	return nil, 0, fmt.Errorf("%s: the logs end at zxid %#x, and clients were answered up to %#x: a log is missing, or was cut: restore the directory, or remove it to begin without data",
		dir.path, l.tree.zxid, promised)
}

// read passes each payload of a file to load. The file must have this zxid. torn is the size of an
// incomplete last record.
func (dir *directory) read(f stored, zxid int64, load func([]byte) error) (torn int, err error) {
	content, err := os.ReadFile(filepath.Join(dir.path, f.name))
	if err != nil {
		return 0, err
	}
	file, err := parseFile(f.kind, content)
	if err != nil {
		return 0, dir.damaged(f, err.Error())
	}

	if file.zxid != zxid || f.zxid != zxid {
		return 0, dir.damaged(f, fmt.Sprintf("it goes on from zxid %#x, but the files before it end at %#x", file.zxid, zxid))
	}

	for i, payload := range file.payloads {
		if err := load(payload); err != nil {
			return 0, dir.damaged(f, (&damage{file.offsets[i], err.Error()}).Error())
		}
	}
	return file.torn, nil
}

// damaged returns the error about a file that cannot be used.
func (dir *directory) damaged(f stored, what string) error {
	return fmt.Errorf("%s is damaged: %s: restore the directory, or remove it to begin without data",
		filepath.Join(dir.path, f.name), what)
}

// store writes a snapshot, and returns once it has reached the disk.
func (dir *directory) store(st *state) (size int64, err error) {
	return dir.create(header{kindSnapshot, rand.Uint64(), st.tree.zxid}, func(f *recordWriter) error {
		var payload []byte
		for entry := range st.entries {
			if payload = append(payload, entry...); len(payload) < recordSize {
				continue
			}
			if err := f.write(payload); err != nil {
				return err
			}
			payload = payload[:0]
		}
		return f.write(payload)
	})
}

// begin begins a log of the transactions after zxid.
func (dir *directory) begin(zxid int64) (*recordWriter, error) {
	h := header{kindLog, rand.Uint64(), zxid}
	size, err := dir.create(h, func(*recordWriter) error { return nil })
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(dir.pathOf(h), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	return &recordWriter{h, file, bufio.NewWriterSize(file, recordSize), size}, nil
}

// create creates a file with a header and the records that fill writes, and returns its size. The
// file gets its name only once all of it has reached the disk.
func (dir *directory) create(h header, fill func(*recordWriter) error) (size int64, err error) {
	path := dir.pathOf(h)
	file, err := os.OpenFile(path+unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(path + unfinished)
		}
	}()

	f := &recordWriter{h, file, bufio.NewWriterSize(file, recordSize), headerSize}
	if _, err := f.out.Write(h.append(nil)); err != nil {
		return 0, err
	}
	if err := fill(f); err != nil {
		return 0, err
	}

	if err := f.flush(dir.sync); err != nil {
		return 0, err
	}

	// Windows can't rename open files.
	if err := file.Close(); err != nil {
		return 0, err
	}
	if err := os.Rename(path+unfinished, path); err != nil {
		return 0, err
	}

	return f.size, syncDirectory(dir.path)
}

func (dir *directory) pathOf(h header) string {
	return filepath.Join(dir.path, fileName(h.kind, h.zxid))
}

// removeBefore removes the snapshots and logs that a snapshot at zxid has replaced.
func (dir *directory) removeBefore(zxid int64) error {
	snapshots, logs, err := dir.files()
	if err != nil {
		return err
	}
	for _, f := range append(snapshots, logs...) {
		if f.zxid >= zxid {
			continue
		}
		if err := os.Remove(filepath.Join(dir.path, f.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	return nil
}

// A recordWriter appends records to a file.
type recordWriter struct {
	header
	file *os.File
	out  *bufio.Writer
	size int64 // including bytes still in memory
}

// write appends a record. It can stay in memory until flush.
func (f *recordWriter) write(payload []byte) error {
	head := f.recordHead(payload)
	f.size += int64(len(head) + len(payload))
	if _, err := f.out.Write(head); err != nil {
		return err
	}
	_, err := f.out.Write(payload)
	return err
}

// flush returns once all records have reached the disk.
func (f *recordWriter) flush(sync func(*os.File) error) error {
	if err := f.out.Flush(); err != nil {
		return err
	}
	return sync(f.file)
}
