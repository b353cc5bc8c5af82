package embedded_test

import (
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// requireAlive requires that the server serves a new client.
func requireAlive(t testing.TB, s *embedded.Server) {
	t.Helper()
	c := connect(t, s, hello{})
	require.NotZero(t, c.session)
	require.Zero(t, c.must(t, zkwire.OpCloseSession, nil).code)
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
			require.Zero(t, c.must(t, zkwire.OpCreate, sized(limit)).code)
			data := c.must(t, zkwire.OpGetData, packet{}.string("/x").bool(false)).Buffer()
			require.Len(t, data, len(sized(limit))-len(packet{}.create("/x", []byte{}, 0)))

			go c.send(zkwire.OpCreate, sized(limit+1)) // may be cut short
			require.Error(t, suite.Err(c.receive()))
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
		suite.Got(c.nc.Write(append(packet{}.int32(1<<31-1), make([]byte, 5000)...)))(t)
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
			for _, op := range []zkwire.Op{zkwire.OpCreate, zkwire.OpSetData, zkwire.OpSetACL, zkwire.OpSetWatches, zkwire.OpSetWatches2, zkwire.OpGetData, zkwire.OpMulti, zkwire.OpMultiRead, zkwire.OpSync} {
				suite.Got(c.call(op, body))(t)
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

func TestReconfigDeleteContainerAndSASLAreAnswered(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	require.EqualValues(t, zkwire.CodeMarshallingError, c.must(t, zkwire.OpReconfig, nil).code)
	require.EqualValues(t, zkwire.CodeReconfigDisabled, c.must(t, zkwire.OpReconfig, packet{}.int32(-1).int32(-1).string("x").int64(0)).code)
	require.EqualValues(t, zkwire.CodeBadArguments, c.must(t, zkwire.OpDeleteContainer, packet{}.string("/x")).code)
	a := c.must(t, zkwire.OpSASL, packet{}.buffer([]byte("token")))
	require.Zero(t, a.code)
	require.Nil(t, a.Buffer())
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
		"broken auth":     packet{}.int32(8).int32(-4).op(zkwire.OpAuth),
		"broken sasl":     packet{}.int32(8).int32(1).op(zkwire.OpSASL),
	} {
		c := connect(t, s, hello{})
		suite.Got(c.nc.Write(raw))(t)
		require.ErrorIs(t, suite.Err(c.receive()), io.EOF, name)
	}

	for name, raw := range map[string][]byte{
		"empty handshake":     packet{}.int32(0),
		"truncated handshake": packet{}.int32(8).int32(0).int32(0),
		"lying password":      packet{}.int32(28).int32(0).int64(0).int32(0).int64(0).int32(1 << 20),
		"nonsense":            []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		nc := openRaw(t, s)
		suite.Got(nc.Write(raw))(t)
		require.ErrorIs(t, suite.Err(nc.Read(make([]byte, 1))), io.EOF, name)
	}

	require.Zero(t, whole.must(t, zkwire.OpPing, nil).code)
}

func TestListsOfIdentitiesAreBounded(t *testing.T) {
	t.Parallel()
	// Every access is checked against every entry and every identity.
	s := start(t, embedded.Config{InMemory: true})
	c := connect(t, s, hello{})
	create := func(path string, entries int32) zkwire.Code {
		body := packet{}.string(path).buffer(nil).int32(entries)
		for i := range entries {
			body = body.int32(i).string("world").string("anyone")
		}
		return c.must(t, zkwire.OpCreate, body.int32(0)).code
	}

	require.Zero(t, create("/long", 128))
	require.EqualValues(t, zkwire.CodeInvalidACL, create("/longer", 129))
	require.EqualValues(t, zkwire.CodeInvalidACL, create("/longest", 35_000))

	for i := range 1000 {
		a := c.must(t, zkwire.OpAuth, packet{}.int32(0).string("digest").buffer(packet{}.int32(int32(i))))
		if a.code != 0 {
			require.EqualValues(t, zkwire.CodeAuthFailed, a.code)
			return
		}
	}
	require.Fail(t, "a thousand identities were taken")
}

func TestAnswersToMultiReadAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes hundreds of megabytes")
	}
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c := connect(t, s, hello{})
	require.Zero(t, c.must(t, zkwire.OpCreate, packet{}.create("/big", make([]byte, 1<<20-200), 0)).code)
	body := packet{}
	for range 10_000 { // ten gigabytes
		body = append(body.part(zkwire.OpGetData), packet{}.string("/big").bool(false)...)
	}
	require.NoError(t, c.send(zkwire.OpMultiRead, body.end()))
	require.ErrorIs(t, suite.Err(c.receive()), io.EOF)
	requireAlive(t, s)
}
