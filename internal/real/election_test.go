package real_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// candidatesEnv, if set, makes the test binary run the candidates that its value describes.
const candidatesEnv = "ZKRECIPES_ELECTION_CANDIDATES"

type candidates struct {
	Servers, Path string
	Names         []string
	Timeout       time.Duration
}

// A sighting is a moment at which a term had no error. It lies between two readings of the clock
// that all processes share.
type sighting struct {
	Name        string
	Token       int64
	From, Until int64
}

// runCandidates runs candidates until standard input ends, which also happens when the parent dies.
func runCandidates(config string) (status int) {
	var c candidates
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	client, err := protocol.Connect(ctx, c.Servers, protocol.WithSessionTimeout(c.Timeout))
	if err != nil && ctx.Err() != nil {
		return 0 // the input ended before the session had begun
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer client.Close()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	var wait suite.Group
	for _, name := range c.Names {
		wait.Go(func() error {
			err := election.New(client, c.Path).Run(ctx, []byte(name), func(held context.Context, t *election.Term) error {
				stop := time.After(time.Duration(rand.Int64N(int64(2 * time.Second))))
				for {
					from := time.Now()
					if t.Err() != nil {
						return nil
					}

					until := time.Now()
					mu.Lock()
					out.Encode(sighting{name, t.Token(), from.UnixNano(), until.UnixNano()})
					mu.Unlock()

					select {
					case <-time.After(3 * time.Millisecond):
					case <-stop:
						return nil
					case <-ctx.Done(): // otherwise it would never pause again
						return nil
					case <-held.Done():
					}
				}
			})

			if err != nil && !errors.Is(err, protocol.ErrLost) {
				return fmt.Errorf("%s: %w", name, err)
			}

			return nil
		})
	}

	if err := wait.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return 0
}

// A fleet is a set of processes with candidates, each process with a network of its own.
type fleet struct {
	t         *testing.T
	srv       *recipestest.Server
	path      string
	timeout   time.Duration
	processes []*process
	force     []outrage
	began     time.Time

	mu       sync.Mutex // protects what follows
	terms    map[int64]*span
	newest   sighting
	progress chan struct{} // closed by the next sighting
}

// A span is the time in which a term was seen.
type span struct {
	name        string
	first, last int64 // the earliest moment by which it had begun, the latest at which it certainly lasted
}

type process struct {
	fleet  *fleet
	names  []string
	server string // the only one that the process knows
	net    *proxy
	cmd    *exec.Cmd
	stdin  io.Closer
	wait   sync.WaitGroup // for the reader of its output
	absent bool           // unable to lead
}

func newFleet(t *testing.T, srv *recipestest.Server, timeout time.Duration, servers ...string) *fleet {
	f := &fleet{
		t: t, srv: srv, path: srv.Root(t) + "/fleet", timeout: timeout,
		terms: make(map[int64]*span), progress: make(chan struct{}), began: time.Now(),
	}

	for i, names := range [][]string{{"a", "b"}, {"c", "d"}, {"e", "f"}, {"g"}} {
		server := servers[i%len(servers)]
		p := &process{fleet: f, names: names, server: server, net: newProxy(t, srv, server)}
		f.processes = append(f.processes, p)
		p.start()
	}

	t.Cleanup(func() {
		for _, p := range f.processes {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
	})

	return f
}

func (p *process) start() {
	f := p.fleet
	config, err := json.Marshal(candidates{p.net.address(), f.path, p.names, f.timeout})
	require.NoError(f.t, err)
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), candidatesEnv+"="+string(config))
	p.cmd.Stderr = os.Stderr
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(f.t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, p.cmd.Start())
	p.wait.Go(func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var s sighting
			if json.Unmarshal(lines.Bytes(), &s) == nil { // otherwise it was killed while writing
				f.seen(s)
			}
		}
	})
}

func (f *fleet) seen(s sighting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.terms[s.Token]
	if t == nil {
		t = &span{name: s.Name, first: s.Until}
		f.terms[s.Token] = t
	}

	t.first, t.last = min(t.first, s.Until), max(t.last, s.From)
	if s.From > f.newest.From {
		f.newest = s
	}

	close(f.progress)
	f.progress = make(chan struct{})
}

// of returns the process of a candidate.
func (f *fleet) of(name string) *process {
	return f.processes[slices.IndexFunc(f.processes, func(p *process) bool { return slices.Contains(p.names, name) })]
}

// leads waits until a candidate of a sound process leads at a moment after since, in another term
// than but. It returns that process, and how much later the moment was.
func (f *fleet) leads(since time.Time, but int64) (*process, time.Duration) {
	f.t.Helper()
	late := time.After(2 * suite.Limit)
	for {
		f.mu.Lock()
		s, progress := f.newest, f.progress
		f.mu.Unlock()
		if s.From > since.UnixNano() && s.Token != but && !f.of(s.Name).absent {
			return f.of(s.Name), time.Duration(s.From - since.UnixNano())
		}
		select {
		case <-progress:
		case <-late:
			require.FailNow(f.t, "no candidate leads")
		}
	}
}

// check fails the test if two leaders led at one time.
func (f *fleet) check() {
	f.t.Helper()
	tokens := make([]int64, 0, len(f.terms))
	for token := range f.terms {
		tokens = append(tokens, token)
	}

	slices.Sort(tokens)

	for i, token := range tokens {
		for _, earlier := range tokens[:i] {
			now, before := f.terms[token], f.terms[earlier]
			overlap := time.Duration(before.last - now.first)
			if overlap >= 0 && f.violent(earlier, before) { // it learns of it within one message, or, if that is lost, in time
				overlap -= f.timeout
			}
			require.Negative(f.t, overlap, "%s led before %s had ended: %v and %v", now.name, before.name, f.seenOf(now), f.seenOf(before))
		}
	}

	f.t.Logf("%d terms of %d candidates", len(tokens), 7)
}

// seenOf describes when a term was first and last seen, by the clock of the log.
func (f *fleet) seenOf(t *span) string {
	at := func(ns int64) time.Duration { return time.Unix(0, ns).Sub(f.began).Round(time.Millisecond) }
	return fmt.Sprintf("%s from %v to %v", t.name, at(t.first), at(t.last))
}

// logf logs an event and its time.
func (f *fleet) logf(format string, args ...any) {
	f.t.Helper()
	f.t.Logf("%8v  "+format, append([]any{time.Since(f.began).Round(time.Millisecond)}, args...)...)
}

// A trouble is a fault of the leading process. It lasts until the returned function is called.
type trouble struct {
	name string
	do   func(f *fleet, leader *process) (mend func())
}

var troubles = []trouble{
	{"session ended", func(f *fleet, leader *process) func() {
		line, err := f.operator().Candidates(f.t.Context())
		require.NoError(f.t, err)
		if len(line) > 0 {
			f.byForce(func() { suite.Expire(f.srv, line[0].Session) })
		}
		return func() {}
	}},
	{"network cut", func(f *fleet, leader *process) func() {
		leader.net.set(broken)
		return func() { leader.net.set(sound) }
	}},
	{"network stalled", func(f *fleet, leader *process) func() {
		leader.net.set(silent)
		return func() { leader.net.set(sound) }
	}},
	{"process stopped", func(f *fleet, leader *process) func() {
		suite.Pause(f.t, leader.cmd.Process)
		return func() { suite.Resume(f.t, leader.cmd.Process) }
	}},
	{"process killed", func(f *fleet, leader *process) func() {
		require.NoError(f.t, leader.cmd.Process.Kill())
		return func() {
			leader.wait.Wait()
			leader.cmd.Wait()
			leader.start()
		}
	}},
	{"node deleted", func(f *fleet, _ *process) func() {
		line, err := f.operator().Candidates(f.t.Context())
		require.NoError(f.t, err)
		if len(line) > 0 {
			f.byForce(func() { err = f.operator().Break(f.t.Context(), line[0].Node) })
			if err != nil {
				require.ErrorIs(f.t, err, zk.ErrNoNode)
			}
		}
		return func() {}
	}},
	{"directory deleted", func(f *fleet, _ *process) func() {
		conn := suite.Session(f.t, f.client()).Conn()
		f.byForce(func() {
			for {
				children, _, err := conn.Children(f.path)
				if errors.Is(err, zk.ErrNoNode) {
					return
				}
				require.NoError(f.t, err)
				for _, c := range children {
					conn.Delete(f.path+"/"+c, -1)
				}
				if conn.Delete(f.path, -1) == nil {
					return
				}
			}
		})
		return func() {}
	}},
}

func (f *fleet) client() *protocol.Client     { return f.srv.Client(f.t) }
func (f *fleet) operator() *election.Election { return election.New(f.client(), f.path) }

// An outrage is a time in which terms were ended by force.
type outrage struct {
	first, last int64
	token       int64 // greater than those of all candidates then in line, and of no later one
}

// byForce calls do, which ends terms by force, and records when.
func (f *fleet) byForce(do func()) {
	o := outrage{first: time.Now().UnixNano()}
	do()
	conn := suite.Session(f.t, f.client()).Conn()
	// Not below the root, which the server may remove when it is empty.
	marker, err := conn.Create(path.Dir(f.path)+"-marker-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	require.NoError(f.t, err)
	_, stat, err := conn.Exists(marker)
	require.NoError(f.t, err)
	require.NoError(f.t, conn.Delete(marker, -1))
	o.token, o.last = stat.Czxid, time.Now().UnixNano()
	f.force = append(f.force, o)
}

// violent reports whether a term may have been ended by force. The term may also have begun later
// than the force: a candidate's knowledge of its predecessor is as old as that of itself.
func (f *fleet) violent(token int64, t *span) bool {
	return slices.ContainsFunc(f.force, func(o outrage) bool {
		return token < o.token && o.first <= t.last && t.last <= o.last+int64(f.timeout)
	})
}

// trouble makes the leader meet a trouble for as long as lasts says, and returns when a candidate
// leads again, the same or another.
func (f *fleet) trouble(x trouble, lasts time.Duration) {
	f.t.Helper()
	leader, _ := f.leads(time.Now(), 0)
	leader.absent = lasts > 0
	began := time.Now()
	forced := len(f.force)
	mend := x.do(f, leader)
	var victim int64
	if len(f.force) > forced {
		f.mu.Lock()
		victim = f.newest.Token
		f.mu.Unlock()
	}

	_, after := f.leads(began, victim)
	f.logf("%-20s %v: a candidate leads after %v", x.name, lasts, after.Round(time.Millisecond))
	if rest := lasts - time.Since(began); rest > 0 {
		time.Sleep(rest)
	}

	mend()
	leader.absent = false
	f.leads(time.Now(), 0)
}

// end ends all processes. Each must exit without an error.
func (f *fleet) end() {
	f.t.Helper()
	for _, p := range f.processes {
		require.NoError(f.t, p.stdin.Close())
		p.wait.Wait()
		require.NoError(f.t, p.cmd.Wait(), strings.Join(p.names, ", "))
	}
	f.check()
}

// meetTroubles meets the troubles whose names begin with prefix.
func (f *fleet) meetTroubles(prefix string) {
	for _, x := range troubles {
		if !strings.HasPrefix(x.name, prefix) {
			continue
		}
		lasts := time.Duration(0)
		if strings.HasPrefix(x.name, "network") || strings.HasPrefix(x.name, "process") {
			lasts = 2 * f.timeout
		}
		f.trouble(x, lasts)
	}
}

func TestSevenCandidatesInFourProcesses(t *testing.T) {
	t.Parallel()
	suite.SkipShort(t)
	srv := recipestest.Start(t)
	f := newFleet(t, srv, 2*time.Second, srv.ConnectString())
	f.meetTroubles("process") // simulations have the others
	f.trouble(trouble{"server restarted", func(f *fleet, _ *process) func() {
		srv.Embedded().Stop()
		time.Sleep(f.timeout / 4)
		require.NoError(t, srv.Embedded().Resume())
		return func() {}
	}}, 0)
	f.end()
}

func TestSevenCandidatesOnThreeMembers(t *testing.T) {
	t.Parallel()
	cluster := ensemble.Start(t, 3)
	var servers []string
	for _, m := range cluster.Members() {
		servers = append(servers, m.ConnectString())
	}

	f := newFleet(t, cluster.Server(t), 4*time.Second, servers...)
	f.meetTroubles("")
	for _, rank := range []string{"follower", "leader"} {
		f.isolate(cluster, rank)
	}

	f.trouble(trouble{"member killed", func(*fleet, *process) func() {
		m := cluster.Leader()
		m.Stop()
		return m.Start
	}}, 0)

	cluster.WaitHealthy()
	f.end()
}

// isolate cuts the member of this rank off from the others while one of its clients leads. The
// member goes on answering that client.
func (f *fleet) isolate(cluster *ensemble.Cluster, rank string) {
	f.t.Helper()
	var m *ensemble.Member
	for m == nil {
		p, _ := f.leads(time.Now(), 0)
		at := cluster.Members()[slices.IndexFunc(cluster.Members(), func(m *ensemble.Member) bool {
			return m.ConnectString() == p.server
		})]
		if (at == cluster.Leader()) == (rank == "leader") {
			m = at
		}
	}

	absent := func(yes bool) {
		for _, p := range f.processes {
			p.absent = yes && p.server == m.ConnectString()
		}
	}

	absent(true)
	began := time.Now()
	m.Isolate()
	_, after := f.leads(began, 0)
	f.logf("%-20s another candidate leads after %v", rank+" isolated", after.Round(time.Millisecond))
	if rest := 2*f.timeout - time.Since(began); rest > 0 {
		time.Sleep(rest)
	}

	m.Rejoin()
	cluster.WaitHealthy()
	absent(false)
	f.leads(time.Now(), 0)
}

// A proxy is the network between one process and its server.
type proxy struct {
	listener net.Listener
	dial     func() (net.Conn, error)

	mu    sync.Mutex // protects what follows
	state condition
	conns map[net.Conn]struct{}
}

type condition int

const (
	sound condition = iota
	broken
	silent // bytes get lost, and the connections are cut when the condition ends
)

func newProxy(t *testing.T, srv *recipestest.Server, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{
		listener: l,
		dial:     func() (net.Conn, error) { return srv.Dial("tcp", target, time.Second) },
		conns:    make(map[net.Conn]struct{}),
	}

	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wait.Go(func() { p.serve(c) })
		}
	})

	t.Cleanup(func() {
		l.Close()
		p.set(broken)
		wait.Wait()
	})

	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// set changes the condition. It cuts all connections unless they are to be silent.
func (p *proxy) set(c condition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = c
	if c != silent {
		for c := range p.conns {
			c.Close()
		}
	}
}

// keep registers c, to be closed when the condition changes, and reports whether c may be used.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	return p.state != broken
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := p.dial()
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(client) || !p.keep(server) {
		return
	}

	var wait sync.WaitGroup
	carry := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		b := make([]byte, 1<<14)

		for {
			n, err := from.Read(b)
			p.mu.Lock()
			lost := p.state == silent
			p.mu.Unlock()
			if err == nil && !lost {
				_, err = to.Write(b[:n])
			}
			if err != nil {
				return
			}
		}
	}

	wait.Go(func() { carry(server, client) })
	wait.Go(func() { carry(client, server) })
	wait.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}
