package embedded_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A rig sends the same requests to a server that is restarted and to one that is not.
type rig struct {
	t      *testing.T
	cfg    embedded.Config
	kept   *embedded.Server
	client *wireClient // of the server that is restarted
	model  *wireClient // of the other one
}

// send sends a request to both and requires the same code.
func (r *rig) send(t *rapid.T, op int32, body packet) {
	got, err := r.client.call(op, body)
	require.NoError(t, err)
	want, err := r.model.call(op, body)
	require.NoError(t, err)
	require.Equal(t, want.code, got.code)
}

// restart replaces the server by one with the same directory, or with a copy of it as it would be
// after a crash, and resumes the session.
func (r *rig) restart(t *rapid.T, crash bool) {
	before := walk(t, r.client)
	if crash {
		r.cfg.Dir = copied(r.t, r.cfg.Dir)
	}
	require.NoError(t, r.kept.Close())

	s, err := embedded.Start(r.cfg)
	require.NoError(t, err)
	r.kept = s
	session := r.client.session
	r.client = connect(r.t, r.kept, hello{session: session, password: r.client.password})
	require.Equal(t, session, r.client.session)
	require.Equal(t, before, walk(t, r.client))
	require.Equal(t, comparable(walk(t, r.model)), comparable(before))
}

var (
	unlike = regexp.MustCompile(`(czxid|mzxid|ctime|mtime|pzxid):\d+ ?`)
	owner  = regexp.MustCompile(`owner:[1-9]\d*`)
)

// comparable returns what walk returns, without what differs between two servers.
func comparable(nodes []string) []string {
	for i, n := range nodes {
		n, _, _ = strings.Cut(n, " acl ")
		nodes[i] = owner.ReplaceAllString(unlike.ReplaceAllString(n, ""), "owner:session")
	}
	return nodes
}

func TestTreeIsTheSameAfterAnyRestart(t *testing.T) {
	t.Parallel()
	path := rapid.SampledFrom([]string{"/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a", "/none/a"})
	version := rapid.SampledFrom([]int32{-1, -1, -1, 0, 1})
	data := rapid.SampledFrom([][]byte{nil, {}, []byte("data")})

	rapid.Check(t, func(rt *rapid.T) {
		r := &rig{t: t, cfg: kept(t.TempDir()).WithLogSize(int64(rapid.SampledFrom([]int{1, 500, 1 << 20}).Draw(rt, "log")))}
		var err error
		r.kept, err = embedded.Start(r.cfg)
		require.NoError(rt, err)
		defer func() { r.kept.Close() }()
		r.client = connect(t, r.kept, hello{})
		model, err := embedded.Start(embedded.Config{InMemory: true})
		require.NoError(rt, err)
		defer model.Close()
		r.model = connect(t, model, hello{})

		rt.Repeat(map[string]func(*rapid.T){
			"create": func(rt *rapid.T) {
				flags := rapid.Int32Range(0, 3).Draw(rt, "flags")
				r.send(rt, opCreate, packet{}.create(path.Draw(rt, "path"), data.Draw(rt, "data"), flags))
			},
			"container": func(rt *rapid.T) {
				r.send(rt, opCreateContainer, packet{}.create(path.Draw(rt, "path"), nil, 4))
			},
			"delete": func(rt *rapid.T) {
				r.send(rt, opDelete, packet{}.string(path.Draw(rt, "path")).int32(version.Draw(rt, "version")))
			},
			"setData": func(rt *rapid.T) {
				r.send(rt, opSetData, packet{}.string(path.Draw(rt, "path")).buffer(data.Draw(rt, "data")).int32(version.Draw(rt, "version")))
			},
			"setACL": func(rt *rapid.T) {
				r.send(rt, opSetACL, packet{}.string(path.Draw(rt, "path")).open().int32(version.Draw(rt, "version")))
			},
			"multi": func(rt *rapid.T) {
				p := path.Draw(rt, "path")
				r.send(rt, opMulti, packet{}.part(opCreate).create(p, nil, 0).part(opSetData).string(p).buffer(data.Draw(rt, "data")).int32(0).
					part(opCreate).create("/m-", nil, 2).part(opDelete).string(path.Draw(rt, "other")).int32(-1).end())
			},
			"restart": func(rt *rapid.T) { r.restart(rt, false) },
			"crash":   func(rt *rapid.T) { r.restart(rt, true) },
		})
		r.restart(rt, rapid.Bool().Draw(rt, "crash"))
	})
}

// serverProcess is the environment variable that makes the test binary a server. Its value is a
// processConfig.
const serverProcess = "ZKRECIPES_TEST_SERVER"

type processConfig struct{ Dir string }

// runServer is the server process: it prints its address and runs until it is killed.
func runServer(config string) {
	var p processConfig
	if err := json.Unmarshal([]byte(config), &p); err != nil {
		panic(err)
	}
	s, err := embedded.Start(embedded.Config{Dir: p.Dir}.WithLogSize(4 << 10))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.ConnectString())
	suite.UntilStdinEnds(func() { os.Exit(0) })
	<-s.Done()
	fmt.Println(s.Err())
}

// A counter is a client that counts up in a node, one write after the other.
type counter struct {
	path           string
	conn           *zk.Conn
	session        int64
	tried, written atomic.Int64 // the latest number that was sent, and that was acknowledged
}

// run counts until stop is closed, and sends on progress after each write.
func (c *counter) run(stop <-chan struct{}, progress chan<- struct{}) {
	for n := int64(1); ; {
		c.tried.Store(n)
		_, err := c.conn.Set(c.path, []byte(strconv.FormatInt(n, 10)), -1)
		if err == nil {
			c.written.Store(n)
			n++
		}
		select {
		case <-stop:
			return
		default:
		}
		if err != nil {
			continue // the same number again
		}
		select {
		case progress <- struct{}{}:
		case <-stop:
			return
		}
	}
}

func TestKillingTheServerLosesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it starts processes")
	}
	const counters, kills, writes = 4, 8, 60
	dir := t.TempDir()
	var server *suite.Process
	var address atomic.Value
	begin := func() {
		ready := make(chan string, 2)
		server = suite.StartProcess(t, serverProcess, processConfig{dir}, func(line []byte) {
			select {
			case ready <- string(line):
			default:
			}
		})
		where := receive(t, ready)
		_, _, err := net.SplitHostPort(where)
		require.NoError(t, err, where)
		address.Store(where)
	}
	begin()

	dial := func(network, _ string, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout(network, address.Load().(string), timeout)
	}
	connect := func() *zk.Conn {
		c, events, err := zk.Connect([]string{inMemory}, 40*time.Second, zk.WithDialer(dial), zk.WithLogger(silent{}))
		require.NoError(t, err)
		t.Cleanup(c.Close)
		for receive(t, events).State != zk.StateHasSession {
		}
		return c
	}

	stop, progress := make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(running.Wait) // after the clients are closed
	var all []*counter
	for i := range counters {
		c := &counter{path: fmt.Sprintf("/c%d", i), conn: connect()}
		c.session = c.conn.SessionID()
		_, err := c.conn.Create(c.path, []byte("0"), zk.FlagEphemeral, open)
		require.NoError(t, err)
		all = append(all, c)
	}
	witness := connect()
	var once sync.Once
	end := func() { once.Do(func() { close(stop) }) }
	t.Cleanup(end)
	for _, c := range all {
		running.Go(func() { c.run(stop, progress) })
	}

	for range kills {
		for range 1 + rand.IntN(writes) {
			receive(t, progress)
		}
		server.Kill()
		begin()

		for _, c := range all {
			written := c.written.Load()
			data, stat, err := get(t, witness, c.path)
			require.NoError(t, err)
			tried := c.tried.Load()
			n, err := strconv.ParseInt(string(data), 10, 64)
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, written, "acknowledged and lost")
			require.LessOrEqual(t, n, tried)
			require.Equal(t, c.session, stat.EphemeralOwner)
		}
	}
	end()
}
