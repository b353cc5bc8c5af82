package laws

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A foreigner is code of the user's own that the library calls. It is an option of the client, or
// of a call that runs while the client holds leases.
type foreigner struct {
	name   string
	option func(f func()) protocol.ConnectOption
	use    func(ctx context.Context, s *Stage, f func()) error
}

var foreigners = []foreigner{
	{"logger", func(f func()) protocol.ConnectOption { return protocol.WithLogger(slog.New(foreignLog{f})) }, nil},
	{"observer", func(f func()) protocol.ConnectOption { return protocol.WithObserver(foreignObserver(f)) }, nil},
	{"state listener", func(f func()) protocol.ConnectOption {
		return protocol.WithStateListener(func(protocol.State) { f() })
	}, nil},
	{"dialer", nil, nil}, // see foreign
	{"Close of a connection", nil, nil},
	{"ACL function", nil, func(ctx context.Context, s *Stage, f func()) error {
		acl := func(string) []zk.ACL { f(); return nil }
		return useLock(ctx, s.Client.With(protocol.WithACLFor(acl)), s.Path+"/use", func() {})
	}},
	{"back-off", nil, func(ctx context.Context, s *Stage, f func()) error {
		throttle := func(n int) { s.Link.Fail(recipestest.OpAny, "", int32(zkwire.CodeThrottled), n) }
		throttle(storm) // the first may be a request of the session itself
		pace := func() backoff.BackOff { throttle(0); f(); return backoff.NewConstantBackOff(time.Second) }
		return useLock(ctx, s.Client.With(protocol.WithBackOff(pace)), s.Path+"/use", func() {})
	}},
	{"function of Do", nil, func(ctx context.Context, s *Stage, f func()) error {
		return useLock(ctx, s.Client, s.Path+"/use", f)
	}},
}

func useLock(ctx context.Context, c *protocol.Client, path string, f func()) error {
	return lock.New(c, path).Do(ctx, func(context.Context, *lock.Lease) error { f(); return nil })
}

// A habit is a way in which the user's code fails to return.
type habit struct {
	name  string
	do    func(s *Stage, release chan struct{})
	fatal bool // the process may die of it, or hang
}

var habits = []habit{
	{"blocks", func(_ *Stage, release chan struct{}) { <-release }, false},
	{"closes the client", func(s *Stage, _ chan struct{}) { s.Client.Close() }, true},
	{"locks with the client", func(s *Stage, _ chan struct{}) {
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		useLock(ctx, s.Client, s.Path+"/within", func() {})
	}, true},
	{"panics", func(*Stage, chan struct{}) { panic("code of the user's own") }, true},
	{"calls Goexit", func(*Stage, chan struct{}) { runtime.Goexit() }, true},
}

// Foreign lets the user's own code misbehave, and takes leases away from that client. Every lease
// must end before another client can hold the same lock.
func Foreign(t *testing.T, p *Player) {
	title := "Whether leases end in time while code of the user's own misbehaves."
	p.law(t, law{name: "foreign", title: title, embedded: true, most: 250, cells: func(sc *scene) {
		for _, h := range slices.Concat(habits[:1], habits[len(habits)-2:]) {
			var left atomic.Int64     // calls until one fails
			var release chan struct{} // of the bubble
			acl := protocol.WithACLFor(func(string) []zk.ACL {
				if left.Add(-1) == 0 {
					h.do(nil, release)
				}
				return nil
			})
			for n := range int64(6) {
				sc.cell(fmt.Sprint("its ACL function ", h.name, " ", n), setting{client: []protocol.ConnectOption{acl}}, func(s *Stage, v Verb, base int) {
					release = make(chan struct{})
					defer close(release)
					left.Store(n + 1)
					o := s.do(v, s.ctx)
					left.Store(0)
					if text := s.judge(v, o, base, *sc.calm); strings.HasPrefix(text, "!") {
						sc.note("its ACL function "+h.name, "", text)
					}
				})
			}
		}

		if sc.warm || !sc.calm.holds {
			return
		}
		for _, f := range foreigners {
			for _, h := range habits {
				for _, way := range ways[1:3] {
					if h.fatal && (sc.row.Name != "lock.Mutex.Lock" || way.name != "session expired") {
						continue // a process each, and the verb makes no difference
					}
					sc.add(f.name+" "+h.name+" "+way.name, func(t *testing.T) {
						text := ""
						if h.fatal {
							text = inChild(t, sc.row.Name, f.name, h.name, way.name)
						} else {
							text = sc.foreign(t, f, h, way)
						}
						sc.note(f.name+" "+h.name, way.name, text)
					})
				}
			}
		}
	}})
}

func (sc *scene) foreign(t *testing.T, f foreigner, h habit, way way) (text string) {
	var s0 *Stage
	var armed atomic.Bool
	var entered, release chan struct{} // of the bubble
	misbehave := func() {
		if h.name != "blocks" && !armed.CompareAndSwap(true, false) { // once, or Lock would call it for ever
			return
		}
		if h.name != "blocks" || armed.Load() {
			select {
			case entered <- struct{}{}:
			default:
			}
			h.do(s0, release)
		}
	}
	opts := []protocol.ConnectOption{protocol.WithDialer(func(network, address string, d time.Duration) (net.Conn, error) {
		if f.name == "dialer" {
			misbehave()
		}
		c, err := s0.Link.Dial(network, address, d)
		if err == nil && f.name == "Close of a connection" {
			c = foreignConn{c, misbehave}
		}
		return c, err
	})}
	if f.option != nil {
		opts = append(opts, f.option(misbehave))
	}
	sc.play(t, setting{begin: func(s *Stage) { s0 = s }, client: opts}, func(s *Stage, v Verb) {
		entered, release = make(chan struct{}, 1), make(chan struct{})
		must(v.prepare())
		o := s.do(v, s.ctx)
		check(o.err)
		holds, leases := []Hold{o.held.Hold}, []*lock.Lease(nil)
		for _, name := range []string{"/other1", "/other2"} {
			leases = append(leases, must(lock.New(s.Client, s.Path+name).Lock(s.ctx)))
			holds = append(holds, leases[len(leases)-1])
		}

		armed.Store(true)
		var calls sync.WaitGroup
		if f.use != nil {
			ctx, cancel := context.WithTimeout(s.ctx, 2*timeout)
			defer cancel()
			calls.Go(func() {
				defer func() { recover() }() // it may well reach the caller whose function panics
				f.use(ctx, s, misbehave)
			})
			select {
			case <-entered:
			case <-ctx.Done():
				check(ctx.Err())
			}
		}
		late := time.After(timeout)                        // when the servers may grant it to another client
		if h.name != "closes the client" || f.use == nil { // else it is closed by now
			way.take(s, v)
		}
		select {
		case <-entered:
		case <-time.After(timeout):
		}
		text = "! Err hangs"
		if !hang(holds) {
			<-late
			text = ended(holds)
		}
		fmt.Fprintf(report, "outcome: %s\n", text)
		armed.Store(false)
		close(release)

		s.Link.Heal()
		calls.Wait()
		o.back()
		for _, l := range leases {
			l.Unlock(s.ctx)
		}
		s.rest()
	})
	return text
}

// inChild plays a cell in a process of its own, which may die.
func inChild(t *testing.T, names ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // of a busy machine
	defer cancel()
	child := exec.CommandContext(ctx, must(os.Executable()), "-test.run=^TestForeignChild$", "-test.v")
	child.Env = append(os.Environ(), "LAWS_CHILD="+strings.Join(names, "|"))
	out, _ := child.CombinedOutput()
	_, text, _ := strings.Cut(string(out), "outcome: ")
	text, rest, _ := strings.Cut(text, "\n")
	switch {
	case strings.Contains(rest, "in the end"):
		return text
	case text == "":
		text = "then nothing"
	}
	text = "! " + strings.TrimPrefix(text, "! ")
	switch {
	case ctx.Err() != nil || strings.Contains(string(out), "deadlock"):
		return text + "; something hangs for ever"
	case strings.Contains(string(out), "panic: code of the user's own"):
		return text + "; the process dies of the panic"
	}
	t.Logf("%s", out)
	return text + "; the process dies"
}

// report is where a child says what came of it.
var report io.Writer = io.Discard

// ForeignChild plays the cell that a parent asks for.
func ForeignChild(t *testing.T, p *Player) {
	names := strings.Split(os.Getenv("LAWS_CHILD"), "|")
	if len(names) != 4 {
		t.Skip("only as a child of TestForeign")
	}
	row := p.rows[slices.IndexFunc(p.rows, func(r Row) bool { return r.Name == names[0] })]
	f := foreigners[slices.IndexFunc(foreigners, func(f foreigner) bool { return f.name == names[1] })]
	h := habits[slices.IndexFunc(habits, func(h habit) bool { return h.name == names[2] })]
	way := ways[slices.IndexFunc(ways, func(w way) bool { return w.name == names[3] })]
	report = os.Stdout
	(&scene{Player: p, row: row}).foreign(t, f, h, way)
	fmt.Fprintln(report, "in the end")
}

// hang reports whether Err does. No virtual time passes meanwhile: it stands still while a
// goroutine waits for a mutex. A busy machine has ten seconds.
func hang(holds []Hold) bool {
	returned := make(chan error, len(holds))
	for _, h := range holds {
		go func() { returned <- h.Err() }()
	}
	for end := real() + 10_000_000; real() < end && len(returned) < len(holds); {
		runtime.Gosched()
	}
	return len(returned) < len(holds)
}

// ended says how many holds have ended.
func ended(holds []Hold) string {
	n := 0
	for _, h := range holds {
		select {
		case <-h.Done():
			n++
		default:
		}
	}
	switch n {
	case len(holds):
		return "all end"
	case 0:
		return "! none ends"
	}
	return "! not all end"
}

// real returns microseconds of the real time.
func real() int64 {
	var tv syscall.Timeval
	syscall.Gettimeofday(&tv)
	return tv.Sec*1e6 + int64(tv.Usec)
}

type foreignLog struct{ f func() }

func (foreignLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (b foreignLog) Handle(context.Context, slog.Record) error  { b.f(); return nil }
func (b foreignLog) WithAttrs([]slog.Attr) slog.Handler         { return b }
func (b foreignLog) WithGroup(string) slog.Handler              { return b }

type foreignObserver func()

func (b foreignObserver) Observe(protocol.Event) { b() }

type foreignConn struct {
	net.Conn
	f func()
}

func (c foreignConn) Close() error { c.f(); return c.Conn.Close() }
