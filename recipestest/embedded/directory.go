package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Names of files in a data directory.
const (
	lockName   = "lock"
	dataName   = "data"
	unfinished = ".tmp" // of a data file that isn't complete
)

// recordSize is the approximate size of a snapshot's records.
const recordSize = 256 << 10

// A directory is a data directory that this process has locked. Files that aren't the server's are
// left alone.
type directory struct {
	path string
	lock io.Closer
	sync func(*os.File) error
	data *dataFile // nil before store
}

// openDirectory creates the directory if it does not exist, and locks it.
func openDirectory(path string, sync func(*os.File) error) (*directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDirectory(path, lockName)
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("%s: another server uses this directory", path)
	}
	if err != nil {
		return nil, err
	}
	return &directory{path: path, lock: lock, sync: sync}, nil
}

func (dir *directory) close() {
	if dir.data != nil {
		dir.data.file.Close()
	}
	dir.lock.Close()
}

// load returns the state in the data file, or nil if there is no file. torn is the size of an
// incomplete last record.
func (dir *directory) load() (st *state, torn int, err error) {
	path := filepath.Join(dir.path, dataName)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}

	l := newLoader()
	mark, torn, err := parseFile(content, l.load)
	switch {
	case err != nil:
	case !l.complete:
		err = &damage{len(content) - torn, "the snapshot has no end"}
	case l.tree.zxid < mark: // whatever clients have seen must be there
		err = &damage{len(content) - torn, fmt.Sprintf("the data ends at zxid %#x, and clients were answered up to %#x", l.tree.zxid, mark)}
	default:
		return &l.state, torn, nil
	}
	return nil, 0, fmt.Errorf("%s is damaged: %w: restore the directory, or remove it to begin without data", path, err)
}

// store replaces the data file by a file with only a snapshot, and returns once that has reached
// the disk. If it fails before that, the data file is as before.
func (dir *directory) store(st *state) error {
	path := filepath.Join(dir.path, dataName)
	file, err := os.OpenFile(path+unfinished, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	f := &dataFile{salt: salt(rand.Uint64()), file: file}
	if err := errors.Join(f.begin(st), dir.sync(file)); err != nil {
		file.Close()
		return err
	}

	if dir.data != nil {
		dir.data.file.Close()
	}
	if f.file, err = rename(file, path); err != nil {
		return err
	}
	dir.data = f
	return syncDirectory(dir.path)
}

// A dataFile appends to a data file.
type dataFile struct {
	salt
	file *os.File
	size int64
}

func (f *dataFile) write(b []byte) error {
	n, err := f.file.WriteAt(b, f.size)
	f.size += int64(n)
	return err
}

// begin writes everything up to the snapshot.
func (f *dataFile) begin(st *state) error {
	if err := f.write(append(f.header(), markOf(st.tree.zxid)...)); err != nil {
		return err
	}
	var payload []byte
	for entry := range st.entries {
		// Entries share a record, because each record has a head and a checksum of its own.
		if payload = append(payload, entry...); len(payload) < recordSize {
			continue
		}
		if err := f.write(f.record(payload)); err != nil {
			return err
		}
		payload = payload[:0]
	}
	return f.write(f.record(payload))
}

// append writes a record of transactions up to a zxid, and returns once it has reached the disk.
// Clients may be answered then.
func (f *dataFile) append(payload []byte, upto int64, sync func(*os.File) error) error {
	if err := f.write(f.record(payload)); err != nil {
		return err
	}
	if err := sync(f.file); err != nil {
		return err
	}
	_, err := f.file.WriteAt(markOf(upto), headerSize)
	return err
}
