package protocol_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A foreignLog is a handler that does something foreign at each message.
type foreignLog func()

func (foreignLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (f foreignLog) Handle(context.Context, slog.Record) error  { f(); return nil }
func (f foreignLog) WithAttrs([]slog.Attr) slog.Handler         { return f }
func (f foreignLog) WithGroup(string) slog.Handler              { return f }

type foreignObserver func()

func (f foreignObserver) Observe(protocol.Event) { f() }

type foreignConn struct {
	net.Conn
	does func()
}

func (c foreignConn) Close() error { c.does(); return c.Conn.Close() }

// Three hundred leases are lost while a logger, an observer, a listener and the Close of a
// connection do something foreign. Each ends before another client can hold it, Err answers, and
// Close keeps its bound.
func TestForeignCodeHoldsUpNoLoss(t *testing.T) {
	ways := map[string]func(release chan struct{}) func(){
		"blocks": func(release chan struct{}) func() { return func() { <-release } },
		"panics": func(chan struct{}) func() { return func() { panic("foreign") } },
		"ends":   func(chan struct{}) func() { return runtime.Goexit },
		"slow":   func(chan struct{}) func() { return func() { time.Sleep(20 * time.Millisecond) } },
	}
	for way, does := range ways {
		t.Run(way, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				const timeout = 4 * time.Second
				link, root, release := srv.Link(t), srv.Root(t), make(chan struct{})
				f := does(release)
				told := make(chan protocol.State, 1000)
				c := link.Client(t, protocol.WithSessionTimeout(timeout),
					protocol.WithLogger(slog.New(foreignLog(f))), protocol.WithObserver(foreignObserver(f)),
					protocol.WithStateListener(func(protocol.State) { f() }),
					protocol.WithStateListener(func(s protocol.State) { told <- s }),
					protocol.WithDialer(func(network, address string, d time.Duration) (net.Conn, error) {
						c, err := link.Dial(network, address, d)
						return foreignConn{c, f}, err
					}))
				const n = 300
				ended := make(chan time.Time, n)
				for i := range n {
					hold(t, c, fmt.Sprint(root, "/", i)).AfterFunc(func() { ended <- time.Now() })
				}
				one := hold(t, c, root+"/one")

				link.Stall()
				stalled := time.Now()
				for range n {
					require.Less(t, wait(t, ended).Sub(stalled), timeout)
				}
				require.ErrorIs(t, one.Err(), protocol.ErrLost)
				synctest.Wait()
				require.Contains(t, []protocol.State{<-told, <-told, <-told}, protocol.Lost)
				link.Heal()
				time.Sleep(3 * timeout)
				require.LessOrEqual(t, took(func() { require.NoError(t, c.Close()) }), 2*time.Second)
				close(release)
			})
		})
	}
}

// Ten thousand leases that are lost are one message with a number and some paths.
func TestManyLossesAreOneMessage(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, log, root := srv.Link(t), newJournal(), srv.Root(t)
		c := link.Client(t, log.logger())
		var last *recipe.Grant
		for i := range 2000 {
			last = hold(t, c, fmt.Sprint(root, "/", i))
		}
		link.Stall()
		<-last.Session().Done()
		synctest.Wait()
		lost := log.take("WARN lost")
		require.Len(t, lost, 1)
		require.Contains(t, lost[0], "count=2000 paths="+root)
		require.Equal(t, 5, strings.Count(lost[0], root))
		link.Heal()
	})
}

// A back-off, an ACL function or a dialer that panics, ends its goroutine or returns nil ends the
// call that needs it with an error, and no other.
func TestFailingFunctionIsAnErrorWithAName(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, broken := srv.Root(t), srv.Link(t)
		c := broken.Client(t)
		for want, option := range map[string]protocol.Option{
			"back-off is nil":               protocol.WithBackOff(func() backoff.BackOff { return nil }),
			"back-off panicked: x":          protocol.WithBackOff(func() backoff.BackOff { panic("x") }),
			"ACL function panicked: x":      protocol.WithACLFor(func(string) []zk.ACL { panic("x") }),
			"operation ended its goroutine": protocol.WithACLFor(func(string) []zk.ACL { runtime.Goexit(); return nil }),
		} {
			s := session(t, c.With(option))
			if strings.Contains(want, "back-off") {
				broken.Fail(recipestest.OpCreate, root+"/x", int32(-4), 1)
			}
			require.ErrorContains(t, s.Create(lasting(t), root+"/x", nil, 0), want)
			broken.Fail(recipestest.OpAny, "", 0, 0)
		}
		_, err := lineAt(c.With(protocol.WithACLFor(func(string) []zk.ACL { panic("x") })), root).Enter(lasting(t), request)
		require.ErrorContains(t, err, "ACL function panicked: x")
		release(t, hold(t, c, root))

		for want, d := range map[string]zk.Dialer{
			"dialer panicked: x":            func(string, string, time.Duration) (net.Conn, error) { panic("x") },
			"dialer ended its goroutine":    func(string, string, time.Duration) (net.Conn, error) { runtime.Goexit(); return nil, nil },
			"dialer returned no connection": func(string, string, time.Duration) (net.Conn, error) { return nil, nil },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := protocol.Connect(ctx, srv.ConnectString(), protocol.WithDialer(d))
			cancel()
			require.ErrorContains(t, err, want)
		}
	})
}
