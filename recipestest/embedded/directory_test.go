package embedded_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// fileIn returns the path of the only file in dir whose name begins with prefix.
func fileIn(t testing.TB, dir, prefix string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

// A life is a data directory after a crash, and what the server had told before its last write and
// after it.
type life struct {
	mark          []byte // before the last write
	dir           string
	log           string // path
	content       []byte // of the log
	records       []int  // their offsets in the log
	before, after []string
}

func live(t *testing.T) life {
	t.Helper()
	dir := t.TempDir()
	s := start(t, kept(dir))
	c := connect(t, s, hello{})
	for i := range 4 {
		require.Zero(t, c.must(t, opCreate, packet{}.create(fmt.Sprintf("/n%d", i), []byte("some data"), 0)).code)
	}
	l := life{before: walk(t, c)}
	mark, err := os.ReadFile(filepath.Join(dir, "acknowledged"))
	require.NoError(t, err)
	l.mark = mark
	require.Zero(t, c.must(t, opSetData, packet{}.string("/n1").buffer([]byte("other data")).int32(0)).code)
	l.after = walk(t, c)

	l.dir = copied(t, dir)
	l.log = fileIn(t, l.dir, "log-")
	l.content, err = os.ReadFile(l.log)
	require.NoError(t, err)
	var torn int
	l.records, torn, err = embedded.Records(l.content)
	require.NoError(t, err)
	require.Zero(t, torn)
	return l
}

// with returns a copy of the directory with another content of one file.
func (l life) with(t *testing.T, path string, content []byte) (dir string) {
	t.Helper()
	dir = copied(t, l.dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)), content, 0o600))
	return dir
}

func TestTornLastWriteIsDropped(t *testing.T) {
	t.Parallel()
	l := live(t)
	last := l.records[len(l.records)-1]
	require.Greater(t, len(l.content), last+20)

	for size := last; size <= len(l.content); size++ {
		cut := l.content[:size:size]
		zeroed := append(cut, make([]byte, len(l.content)-size)...)
		for kind, content := range map[string][]byte{"cut": cut, "zeroed": zeroed} {
			var warnings bytes.Buffer
			// A server that ends while it writes a record has sent no answer about it.
			dir := l.with(t, l.log, content)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "acknowledged"), l.mark, 0o600))
			cfg := kept(dir)
			cfg.Logger = slog.New(slog.NewTextHandler(&warnings, nil))
			s, err := embedded.Start(cfg)
			require.NoError(t, err, "%s at %d", kind, size)

			want := l.before
			if bytes.Equal(content, l.content) {
				want = l.after
			}
			require.Equal(t, want, walk(t, connect(t, s, hello{})), "%s at %d", kind, size)
			require.NoError(t, s.Close())
			torn := len(content) > last && !bytes.Equal(content, l.content)
			require.Equal(t, torn, strings.Contains(warnings.String(), fmt.Sprintf("bytes=%d", len(content)-last)), "%s at %d: %s", kind, size, &warnings)
		}
	}
}

func TestAcknowledgedWritesAreMissed(t *testing.T) {
	t.Parallel()
	l := live(t)
	refused := func(what string, dir string) {
		t.Helper()
		s, err := embedded.Start(kept(dir))
		if err == nil {
			s.Close()
		}
		require.ErrorContains(t, err, "clients were answered", what)
		require.ErrorContains(t, err, "restore the directory, or remove it to begin without data", what)
	}
	for _, at := range l.records {
		refused("cut at a record", l.with(t, l.log, l.content[:at]))
	}
	refused("cut within the last record", l.with(t, l.log, l.content[:len(l.content)-1]))
	for at := l.records[len(l.records)-1]; at < len(l.content); at++ {
		content := bytes.Clone(l.content)
		content[at] ^= 0x10
		refused("flipped", l.with(t, l.log, content))
	}

	for _, gone := range [][]string{{"log-"}, {"log-", "snapshot-"}, {"acknowledged"}} {
		dir := copied(t, l.dir)
		for _, prefix := range gone {
			require.NoError(t, os.Rename(fileIn(t, dir, prefix), filepath.Join(dir, prefix+".bak")))
		}
		refused(fmt.Sprint(gone), dir)
	}
	dir := l.with(t, filepath.Join(l.dir, "acknowledged"), []byte("x"))
	_, err := embedded.Start(kept(dir))
	require.ErrorContains(t, err, "acknowledged is damaged")
	require.Equal(t, l.after, walk(t, connect(t, start(t, kept(copied(t, l.dir))), hello{})))
}

func TestDamageIsReportedWithFileAndOffset(t *testing.T) {
	t.Parallel()
	l := live(t)
	refused := func(path string, content []byte, offset int) {
		t.Helper()
		_, err := embedded.Start(kept(l.with(t, path, content)))
		require.ErrorContains(t, err, string(filepath.Separator)+filepath.Base(path)+" is damaged: ")
		require.ErrorContains(t, err, fmt.Sprintf("offset %d: ", offset))
		require.ErrorContains(t, err, ": restore the directory, or remove it to begin without data")
	}

	// Any byte of the log but those of the last record.
	last := l.records[len(l.records)-1]
	for i := range last {
		at := 0
		for _, offset := range l.records {
			if offset <= i {
				at = offset
			}
		}
		content := bytes.Clone(l.content)
		content[i] ^= 0x10
		refused(l.log, content, at)
	}

	// A record that is missing in the middle, also if the one after it is whole.
	refused(l.log, slices.Delete(bytes.Clone(l.content), l.records[2], l.records[3]), l.records[2])

	// Any byte of a snapshot.
	snapshot := fileIn(t, l.dir, "snapshot-")
	whole, err := os.ReadFile(snapshot)
	require.NoError(t, err)
	for i := range whole {
		content := bytes.Clone(whole)
		content[i] ^= 0x10
		_, err := embedded.Start(kept(l.with(t, snapshot, content)))
		require.ErrorContains(t, err, filepath.Base(snapshot)+" is damaged: ")
	}
	_, err = embedded.Start(kept(l.with(t, snapshot, whole[:len(whole)-1])))
	require.ErrorContains(t, err, "the snapshot has no end")
}

func TestMissingFilesAreReported(t *testing.T) {
	t.Parallel()
	l := live(t)
	dir := copied(t, l.dir)
	require.NoError(t, os.Remove(fileIn(t, dir, "snapshot-")))
	_, err := embedded.Start(kept(dir))
	require.ErrorContains(t, err, "there is a log and no snapshot")

	// A log that does not go on where the one before it ends.
	dir = copied(t, l.dir)
	log := fileIn(t, dir, "log-")
	require.NoError(t, os.Rename(log, log[:len(log)-1]+"f"))
	_, err = embedded.Start(kept(dir))
	require.ErrorContains(t, err, "it goes on from zxid")

	// A log before another one ends with a whole record.
	dir = copied(t, l.dir)
	log = fileIn(t, dir, "log-")
	require.NoError(t, os.WriteFile(log, l.content[:len(l.content)-1], 0o600))
	later := "log-7" + filepath.Base(log)[len("log-7"):]
	require.NoError(t, os.WriteFile(filepath.Join(dir, later), l.content, 0o600))
	_, err = embedded.Start(kept(dir))
	require.ErrorContains(t, err, filepath.Base(log)+" is damaged: its last record was not written to its end")
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := []string{"log-1", "log-xyz", "notes.txt", "notes.tmp", "snapshot-0000000000000001.bak"}
	for _, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	unfinished := filepath.Join(dir, "snapshot-0000000000000001.tmp")
	require.NoError(t, os.WriteFile(unfinished, []byte("half"), 0o600))

	for range 2 {
		require.NoError(t, start(t, kept(dir)).Close())
	}
	for _, name := range names {
		require.FileExists(t, filepath.Join(dir, name))
	}
	require.NoFileExists(t, unfinished)
	fileIn(t, dir, "snapshot-0006")
	fileIn(t, dir, "log-0006")
}

func TestOneServerUsesADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, kept(dir))
	_, err := embedded.Start(kept(dir))
	require.ErrorContains(t, err, "embedded: "+dir+": another server uses this directory")
	require.NoError(t, s.Close())
	start(t, kept(dir))

	require.NoError(t, os.Remove(fileIn(t, dir, "lock")))
	_, err = embedded.Start(kept(dir))
	require.ErrorContains(t, err, "another server uses this directory", "though its lock is gone")

	_, err = embedded.Start(embedded.Config{Dir: filepath.Join(fileIn(t, dir, "acknowledged"), "below")})
	require.ErrorContains(t, err, "not a directory")
}

// sizeOf returns the size of all files in dir, which a server may be replacing.
func sizeOf(t testing.TB, dir string) (size int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		size += info.Size()
	}
	return size
}

func TestSnapshotsReplaceLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, kept(dir).WithLogSize(1000))
	c := connect(t, s, hello{})
	require.Zero(t, c.must(t, opCreate, packet{}.create("/a", nil, 0)).code)
	first := filepath.Base(fileIn(t, dir, "snapshot-"))

	// A log grows while a snapshot is written, and on a busy machine that may take a while.
	for writes := int64(0); writes < 2000 || sizeOf(t, dir) > writes*100/2; writes++ {
		require.Less(t, writes, int64(20_000), "no snapshot has replaced what was written")
		require.Zero(t, c.must(t, opSetData, packet{}.string("/a").buffer(make([]byte, 100)).int32(-1)).code)
	}
	want := walk(t, c)
	require.NoError(t, s.Close())
	require.NotEqual(t, first, filepath.Base(fileIn(t, dir, "snapshot-")))

	s = start(t, kept(dir))
	require.Equal(t, want, walk(t, connect(t, s, hello{})))
}

// FuzzLog loads arbitrary bytes as a log, and as the content of a record.
func FuzzLog(f *testing.F) {
	dir := f.TempDir()
	s := start(f, kept(dir))
	c := connect(f, s, hello{})
	c.must(f, opCreate, packet{}.create("/a", []byte("x"), 1))
	c.must(f, opMulti, packet{}.part(opCreate).create("/m", nil, 0).part(opSetData).string("/m").buffer(nil).int32(0).
		part(opDelete).string("/m").int32(-1).end())
	c.must(f, opSetACL, packet{}.string("/a").acl(31, "digest", "a:b").int32(0))
	require.NoError(f, s.SetSequence("/a", 7))
	c.must(f, opCloseSession, nil)
	require.NoError(f, s.Close())

	content, err := os.ReadFile(fileIn(f, dir, "log-"))
	require.NoError(f, err)
	offsets, _, err := embedded.Records(content)
	require.NoError(f, err)
	for i, at := range offsets {
		// With the zxid that a loader of no snapshot expects, its changes are carried out.
		end := append(offsets, len(content))[i+1]
		payload := bytes.Clone(content[at+12 : end])
		binary.BigEndian.PutUint64(payload, 1)
		f.Add(content[:end], payload)
	}
	f.Add([]byte(nil), []byte{0})

	f.Fuzz(func(t *testing.T, content, payload []byte) {
		if err := embedded.LoadLog(payload); err != nil {
			require.NotEmpty(t, err.Error())
		}

		// Whatever the bytes, the records are whole and in order, and the rest is torn or damaged.
		offsets, torn, err := embedded.Records(content)
		require.True(t, slices.IsSorted(offsets))
		require.LessOrEqual(t, torn, len(content))
		if err != nil || torn > 0 {
			return
		}
		for i, at := range offsets {
			head, torn, err := embedded.Records(content[:at])
			require.NoError(t, err)
			require.Zero(t, torn)
			require.Len(t, head, i)
		}
	})
}

// FuzzSnapshot loads arbitrary bytes as the content of a snapshot's record.
func FuzzSnapshot(f *testing.F) {
	dir := f.TempDir()
	s := start(f, kept(dir))
	connect(f, s, hello{}).must(f, opCreate, packet{}.create("/a", []byte("x"), 1))
	require.NoError(f, s.Close())
	require.NoError(f, start(f, kept(dir)).Close())
	content, err := os.ReadFile(fileIn(f, dir, "snapshot-"))
	require.NoError(f, err)
	f.Add(content[28+12:])

	f.Fuzz(func(t *testing.T, payload []byte) {
		if err := embedded.LoadSnapshot(payload); err != nil {
			require.NotEmpty(t, err.Error())
		}
	})
}
