package lock_test

import (
	"context"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) { suite.Main(m) }

var tooMuch = lock.WithData(make([]byte, protocol.MaxData))

// A locker has the methods that Mutex and Simple share.
type locker interface {
	Lock(context.Context) (*lock.Lease, error)
	TryLock(context.Context) (*lock.Lease, error)
	Do(context.Context, func(context.Context, *lock.Lease) error) error
	TryDo(context.Context, func(context.Context, *lock.Lease) error) error
	Contenders(context.Context) ([]lock.Contender, error)
	Break(context.Context, string) error
}

type newFunc func(*protocol.Client, string, ...lock.Option) locker

var kinds = map[string]newFunc{
	"Mutex": func(c *protocol.Client, path string, opts ...lock.Option) locker { return lock.New(c, path, opts...) },
	"Simple": func(c *protocol.Client, path string, opts ...lock.Option) locker {
		return lock.NewSimple(c, path, opts...)
	},
}

// eachKind runs a test with both kinds of lock on both kinds of server.
func eachKind(t *testing.T, test func(*testing.T, *recipestest.Server, newFunc)) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for name, newLock := range kinds {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, srv, newLock)
			})
		}
	})
}

// ways returns the named kinds as the lockers of the common suite.
func ways(names ...string) map[string]suite.NewLocker {
	all := make(map[string]suite.NewLocker)
	for _, name := range names {
		all[name] = func(c *protocol.Client, path string) suite.Locker {
			m := kinds[name](c, path)
			return suite.Locker{
				Lock:    suite.Leases(m.Lock),
				TryLock: suite.Leases(m.TryLock),
				Block:   suite.Leases(m.Lock),
				Do: func(ctx context.Context, fn func(context.Context, suite.Lease) error) error {
					return m.Do(ctx, func(ctx context.Context, l *lock.Lease) error { return fn(ctx, l) })
				},
				Contenders: func(ctx context.Context) (nodes []string, err error) {
					line, err := m.Contenders(ctx)
					for _, c := range line {
						nodes = append(nodes, c.Node)
					}
					return nodes, err
				},
				Break:  m.Break,
				NoLine: name == "Simple",
			}
		}
	}

	return all
}
