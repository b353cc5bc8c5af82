package embedded_test

import (
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// requireAlive requires that the server serves a new client.
func requireAlive(t testing.TB, s *embedded.Server) {
	t.Helper()
	c := connect(t, s, hello{})
	require.NotZero(t, c.session)
	require.Zero(t, c.must(t, opCloseSession, nil).code)
}

func TestPacketsUpToTheLimitPassAndLargerOnesEndTheConnection(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]embedded.Config{
		"default": {InMemory: true},
		"smaller": {InMemory: true, MaxPacket: 64 << 10},
		"tiny":    {InMemory: true, MaxPacket: 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, cfg)
			limit := cfg.MaxPacket
			if limit == 0 {
				limit = 1048575
			}
			sized := func(n int) []byte { // a request of n bytes
				overhead := len(packet{}.int32(0).int32(0).create("/x", []byte{}, 0))
				return packet{}.create("/x", make([]byte, n-overhead), 0)
			}

			c := connect(t, s, hello{})
			require.Zero(t, c.must(t, opCreate, sized(limit)).code)
			data := c.must(t, opGetData, packet{}.string("/x").bool(false)).buffer()
			require.Len(t, data, len(sized(limit))-len(packet{}.create("/x", []byte{}, 0)))

			go c.send(opCreate, sized(limit+1)) // may be cut short
			_, err := c.receive()
			require.Error(t, err)
			requireAlive(t, s)
		})
	}
}

func TestAnnouncedLengthsAllocateNoMemory(t *testing.T) {
	s := start(t, embedded.Config{InMemory: true, MaxPacket: 1<<31 - 1})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	var conns []*wireClient
	for range 50 {
		c := connect(t, s, hello{})
		_, err := c.nc.Write(append(packet{}.int32(1<<31-1), make([]byte, 5000)...))
		require.NoError(t, err)
		conns = append(conns, c)
	}

	for _, size := range []int32{1 << 30, 1<<31 - 1, -2, -1 << 31} {
		for _, body := range []packet{
			packet{}.int32(size),                                             // a path
			packet{}.string("/").int32(size),                                 // data
			packet{}.string("/").buffer(nil).int32(size),                     // an access control list
			packet{}.int64(0).int32(size),                                    // watches
			packet{}.string("/x").buffer(nil).int32(1).int32(31).int32(size), // a scheme
		} {
			c := connect(t, s, hello{})
			for _, op := range []int32{opCreate, opSetData, opSetACL, opSetWatches, opSetWatches2, opGetData, opMulti, opMultiRead, opSync} {
				_, err := c.call(op, body)
				require.NoError(t, err)
			}
		}
	}

	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))

	for _, c := range conns {
		c.nc.Close()
	}
	requireAlive(t, s)
}

func TestUnknownRequestsAreAnsweredAndEndTheConnection(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	for _, op := range []int32{0, 10, 23, 99, -1, -10, 1 << 30, -1 << 31} {
		c := connect(t, s, hello{})
		a := c.must(t, op, packet{}.string("/"))
		require.EqualValues(t, codeUnimplemented, a.code)
		require.EqualValues(t, -1, a.zxid)
		_, err := c.receive()
		require.ErrorIs(t, err, io.EOF)
	}
	requireAlive(t, s)
}

func TestReconfigDeleteContainerAndSASLAreAnswered(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	require.EqualValues(t, codeMarshalling, c.must(t, opReconfig, nil).code)
	require.EqualValues(t, codeReconfigDisabled, c.must(t, opReconfig, packet{}.int32(-1).int32(-1).string("x").int64(0)).code)
	require.EqualValues(t, codeBadArguments, c.must(t, opDeleteContainer, packet{}.string("/x")).code)
	a := c.must(t, opSASL, packet{}.buffer([]byte("token")))
	require.Zero(t, a.code)
	require.Nil(t, a.buffer())
}

func TestBrokenFramesEndTheConnectionAndNothingElse(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	whole := connect(t, s, hello{timeout: 10000})
	for name, raw := range map[string][]byte{
		"empty":           packet{}.int32(0),
		"half a header":   packet{}.int32(4).int32(1),
		"negative length": packet{}.int32(-1),
		"huge length":     packet{}.int32(1 << 30),
		"a word too late": []byte("ruok"),
		"broken auth":     packet{}.int32(8).int32(-4).int32(opAuth),
		"broken sasl":     packet{}.int32(8).int32(1).int32(opSASL),
	} {
		c := connect(t, s, hello{})
		_, err := c.nc.Write(raw)
		require.NoError(t, err)
		_, err = c.receive()
		require.ErrorIs(t, err, io.EOF, name)
	}

	for name, raw := range map[string][]byte{
		"empty handshake":     packet{}.int32(0),
		"truncated handshake": packet{}.int32(8).int32(0).int32(0),
		"lying password":      packet{}.int32(28).int32(0).int64(0).int32(0).int64(0).int32(1 << 20),
		"nonsense":            []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		nc := openRaw(t, s)
		_, err := nc.Write(raw)
		require.NoError(t, err)
		_, err = nc.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, name)
	}

	require.Zero(t, whole.must(t, opPing, nil).code)
}

func TestListsOfIdentitiesAreBounded(t *testing.T) {
	t.Parallel()
	// Every access is checked against every entry and every identity.
	s := start(t, embedded.Config{InMemory: true})
	c := connect(t, s, hello{})
	create := func(path string, entries int32) int32 {
		body := packet{}.string(path).buffer(nil).int32(entries)
		for i := range entries {
			body = body.int32(i).string("world").string("anyone")
		}
		return c.must(t, opCreate, body.int32(0)).code
	}

	require.Zero(t, create("/long", 4096))
	require.EqualValues(t, codeInvalidACL, create("/longer", 4097))
	require.EqualValues(t, codeInvalidACL, create("/longest", 35_000))

	for i := range 1000 {
		a := c.must(t, opAuth, packet{}.int32(0).string("digest").buffer(packet{}.int32(int32(i))))
		if a.code != 0 {
			require.EqualValues(t, codeAuthFailed, a.code)
			return
		}
	}
	require.Fail(t, "a thousand identities were taken")
}

func TestAnswersToMultiReadAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c := connect(t, s, hello{})
	require.Zero(t, c.must(t, opCreate, packet{}.create("/big", make([]byte, 1<<20-200), 0)).code)
	body := packet{}
	for range 10_000 { // ten gigabytes
		body = append(body.part(opGetData), packet{}.string("/big").bool(false)...)
	}
	require.NoError(t, c.send(opMultiRead, body.end()))
	_, err := c.receive()
	require.ErrorIs(t, err, io.EOF)
	requireAlive(t, s)
}

// One packet asks 45,000 times about a list of 4,000 entries, for 255 identities.
func TestLongListsAreLookedThroughOnceForARequest(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{}), hello{})
	for i := range 250 {
		require.Zero(t, c.must(t, opAuth, packet{}.int32(0).string("digest").buffer(fmt.Appendf(nil, "u%d:x", i))).code)
	}
	list := packet{}.int32(3801)
	for i := range 3800 {
		list = list.int32(31).string("digest").string(fmt.Sprintf("n%d:aaaaaaaaaaaaaaaaaaaaaaaaaaaa", i))
	}
	list = list.int32(31).string("auth").string("")
	body := append(packet{}.string("/n").buffer(nil), list...).int32(0)
	require.Zero(t, c.must(t, opCreate, body).code)

	reads := packet{}
	for range 45_000 {
		reads = reads.part(opGetData).string("/n").bool(false)
	}
	began := time.Now()
	require.Zero(t, c.must(t, opMultiRead, reads.end()).code)
	writes := packet{}
	for i := range 10_000 {
		writes = writes.part(opCreate).create(fmt.Sprintf("/n/%d", i), nil, 0)
	}
	require.Zero(t, c.must(t, opMulti, writes.end()).code)
	require.Less(t, time.Since(began), 20*time.Second)
}
