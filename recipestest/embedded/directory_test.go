package embedded_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A life is the content of a data file, and what the server had told before its last write and
// after it.
type life struct {
	before, after         []string
	unacknowledged, whole []byte // before and after the last write was acknowledged
	records               []int  // their offsets
}

func live(t *testing.T) (l life) {
	t.Helper()
	dir := t.TempDir()
	s := start(t, kept(dir))
	c := connect(t, s, hello{})
	for i := range 4 {
		require.Zero(t, c.must(t, zkwire.OpCreate, packet{}.create(fmt.Sprintf("/n%d", i), []byte("some data"), 0)).code)
	}
	l.before = walk(t, c)
	former := suite.Got(os.ReadFile(filepath.Join(dir, "data")))(t)
	require.Zero(t, c.must(t, zkwire.OpSetData, packet{}.string("/n1").buffer([]byte("other data")).int32(0)).code)
	l.after = walk(t, c)
	l.whole = suite.Got(os.ReadFile(filepath.Join(dir, "data")))(t)
	l.unacknowledged = append(former, l.whole[len(former):]...)

	var torn int
	var err error
	l.records, torn, err = embedded.Records(l.whole)
	require.NoError(t, err)
	require.Zero(t, torn)
	return l
}

// flipped returns a copy of content with one bit of the byte at an offset changed.
func flipped(content []byte, at int) []byte {
	content = bytes.Clone(content)
	content[at] ^= 0x10
	return content
}

func TestTornLastWriteIsDropped(t *testing.T) {
	t.Parallel()
	l := live(t)
	last := l.records[len(l.records)-1]
	require.Greater(t, len(l.whole), last+20)

	for size := last; size <= len(l.whole); size++ {
		cut := l.unacknowledged[:size:size]
		zeroed := append(cut, make([]byte, len(l.whole)-size)...)
		for kind, content := range map[string][]byte{"cut": cut, "zeroed": zeroed} {
			var warnings bytes.Buffer
			cfg := kept(withData(t, content))
			cfg.Logger = slog.New(slog.NewTextHandler(&warnings, nil))
			s, err := embedded.Start(cfg)
			require.NoError(t, err, "%s at %d", kind, size)

			want := l.before
			complete := bytes.Equal(content, l.unacknowledged)
			if complete {
				want = l.after
			}
			require.Equal(t, want, walk(t, connect(t, s, hello{})), "%s at %d", kind, size)
			require.NoError(t, s.Close())
			torn := len(content) > last && !complete
			require.Equal(t, torn, strings.Contains(warnings.String(), fmt.Sprintf("bytes=%d", len(content)-last)), "%s at %d: %s", kind, size, &warnings)
		}
	}
}

func TestDamageIsReportedWithFileAndOffset(t *testing.T) {
	t.Parallel()
	l := live(t)
	refused := func(content []byte, offset int, what string) {
		t.Helper()
		_, err := embedded.Start(kept(withData(t, content)))
		require.ErrorContains(t, err, fmt.Sprintf("%cdata is damaged: offset %d: ", filepath.Separator, offset))
		require.ErrorContains(t, err, what)
		require.ErrorContains(t, err, ": restore the directory, or remove it to begin without data")
	}

	// Any byte but those of the last record.
	last := l.records[len(l.records)-1]
	step := 1
	if testing.Short() {
		step = 7 // each server takes a while
	}
	for i := 0; i < last; i += step {
		at := 0
		for _, offset := range append([]int{20}, l.records...) { // after the header comes the mark
			if offset <= i {
				at = offset
			}
		}
		refused(flipped(l.whole, i), at, "does not match its checksum")
	}

	// A record that is missing in the middle, or in the place of the snapshot.
	refused(slices.Delete(bytes.Clone(l.whole), l.records[2], l.records[3]), l.records[2], "follows")
	refused(slices.Delete(bytes.Clone(l.whole), l.records[0], l.records[1]), l.records[0], "an entry is of unknown kind")
	refused(l.whole[:l.records[1]-1], l.records[0], "the snapshot has no end")

	// Whatever was acknowledged, though it could have been torn.
	for _, at := range l.records[1:] {
		refused(l.whole[:at], at, "clients were answered")
	}
	refused(l.whole[:len(l.whole)-1], last, "clients were answered")
	for i := last; i < len(l.whole); i++ {
		refused(flipped(l.whole, i), last, "clients were answered")
	}
	require.Equal(t, l.after, walk(t, connect(t, start(t, kept(withData(t, l.whole))), hello{})))
}

func TestFilesOfAnotherVersionAreRefused(t *testing.T) {
	t.Parallel()
	header := []byte("zkrdata2 and salt")[:16]
	content := append(binary.BigEndian.AppendUint32(header, crc32.Checksum(header, crc32.MakeTable(crc32.Castagnoli))), make([]byte, 12)...)
	_, err := embedded.Start(kept(withData(t, content)))
	require.ErrorContains(t, err, `the file begins with "zkrdata2" and not with "zkrdata1"`)
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	notes := filepath.Join(dir, "data.txt")
	unfinished := filepath.Join(dir, "data.tmp")
	for _, path := range []string{notes, unfinished} {
		require.NoError(t, os.WriteFile(path, []byte("half"), 0o600))
	}
	for range 2 {
		require.NoError(t, start(t, kept(dir)).Close())
	}
	require.FileExists(t, notes)
	require.NoFileExists(t, unfinished)
}

func TestOneServerUsesADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, kept(dir))
	_, err := embedded.Start(kept(dir))
	require.ErrorContains(t, err, "embedded: "+dir+": another server uses this directory")
	require.NoError(t, s.Close())
	start(t, kept(dir))

	require.NoError(t, os.Remove(filepath.Join(dir, "lock")))
	_, err = embedded.Start(kept(dir))
	require.ErrorContains(t, err, "another server uses this directory", "though its lock is gone")

	_, err = embedded.Start(embedded.Config{Dir: filepath.Join(dir, "data", "below")})
	require.ErrorContains(t, err, "not a directory")
}

func TestSnapshotsReplaceTheData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, kept(dir).WithLogSize(1000))
	c := connect(t, s, hello{})
	require.Zero(t, c.must(t, zkwire.OpCreate, packet{}.create("/a", nil, 0)).code)
	for range 2000 {
		require.Zero(t, c.must(t, zkwire.OpSetData, packet{}.string("/a").buffer(make([]byte, 100)).int32(-1)).code)
	}
	want := walk(t, c)
	crashed := copied(t, dir)
	require.NoError(t, s.Close())
	info := suite.Got(os.Stat(filepath.Join(dir, "data")))(t)
	require.Less(t, info.Size(), int64(10_000), "200 kB were written")

	for _, dir := range []string{dir, crashed} {
		require.Equal(t, want, walk(t, connect(t, start(t, kept(dir)), hello{})))
	}
}

// FuzzData loads arbitrary bytes as a data file, and as the payloads of one.
func FuzzData(f *testing.F) {
	dir := f.TempDir()
	s := start(f, kept(dir))
	c := connect(f, s, hello{})
	c.must(f, zkwire.OpCreate, packet{}.create("/a", []byte("x"), 1))
	c.must(f, zkwire.OpMulti, packet{}.part(zkwire.OpCreate).create("/m", nil, 0).part(zkwire.OpSetData).string("/m").buffer(nil).int32(0).
		part(zkwire.OpDelete).string("/m").int32(-1).end())
	c.must(f, zkwire.OpSetACL, packet{}.string("/a").acl(31, "digest", "a:b").int32(0))
	require.NoError(f, s.SetSequence("/a", 7))
	c.must(f, zkwire.OpCloseSession, nil)
	require.NoError(f, s.Close())

	content := suite.Got(os.ReadFile(filepath.Join(dir, "data")))(f)
	offsets, _, err := embedded.Records(content)
	require.NoError(f, err)
	payload := func(i int) []byte { return content[offsets[i]+12 : append(offsets, len(content))[i+1]] }
	for i := range offsets[1:] {
		// The snapshot's last field is its zxid. Before each transaction, it is such that the
		// transaction follows.
		snapshot := bytes.Clone(payload(0))
		binary.BigEndian.PutUint64(snapshot[len(snapshot)-8:], binary.BigEndian.Uint64(payload(i+1))-1)
		f.Add(content[:offsets[i+1]], snapshot, payload(i+1))
	}

	f.Fuzz(func(t *testing.T, content, snapshot, transactions []byte) {
		if err := embedded.Load(snapshot, transactions); err != nil {
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
