package zkrecipes_test

import (
	"context"
	"crypto/tls"
	"iter"
	"log/slog"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
	"github.com/zkrecipes/zkrecipes/value"
)

// These are the signatures that hold from the first release on. A change that breaks a caller does
// not compile here, whatever directory api records.

type (
	ctx = context.Context

	// held is what every acquired value has.
	held interface {
		Done() <-chan struct{}
		Err() error
		Context(parent context.Context) (context.Context, context.CancelFunc)
		Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error)
	}
	// fenced is an acquired value with one node.
	fenced interface {
		held
		Token() int64
		Check() *zk.CheckVersionRequest
	}
	// node is an acquired value whose node has a name.
	node interface {
		fenced
		Node() string
	}
)

var (
	_ node   = (*lock.Lease)(nil)
	_ held   = (*lock.Leases)(nil)
	_ node   = (*rwlock.Lease)(nil)
	_ node   = (*semaphore.Permit)(nil)
	_ node   = (*election.Term)(nil)
	_ node   = (*group.Assignment)(nil)
	_ node   = (*once.Run)(nil)
	_ node   = (*doublebarrier.Entry)(nil)
	_ fenced = (*queue.Item)(nil)
)

var (
	_ func(ctx, string, ...protocol.ConnectOption) (*protocol.Client, error) = protocol.Connect
	_ func(*protocol.Client, ...protocol.Option) *protocol.Client            = (*protocol.Client).With
	_ func(*protocol.Client, ctx) (*protocol.Session, error)                 = (*protocol.Client).Session
	_ func(*protocol.Client) error                                           = (*protocol.Client).Close
	_ func(*protocol.Client) protocol.State                                  = (*protocol.Client).State
	_ func(time.Duration) protocol.ConnectOption                             = protocol.WithSessionTimeout
	_ func(zk.Dialer) protocol.ConnectOption                                 = protocol.WithDialer
	_ func(*tls.Config) protocol.ConnectOption                               = protocol.WithTLS
	_ func(protocol.TLSFiles) protocol.ConnectOption                         = protocol.WithTLSFiles
	_ func(string, []byte) protocol.ConnectOption                            = protocol.WithAuth
	_ func(func(protocol.State)) protocol.ConnectOption                      = protocol.WithStateListener
	_ func() protocol.ConnectOption                                          = protocol.WithExistingChroot
	_ func([]zk.ACL) protocol.Option                                         = protocol.WithACL
	_ func(func() backoff.BackOff) protocol.Option                           = protocol.WithBackOff
	_ func(*slog.Logger) protocol.Option                                     = protocol.WithLogger
	_ func(protocol.Observer) protocol.Option                                = protocol.WithObserver
	_                                                                        = []protocol.State{protocol.Connected, protocol.Suspended, protocol.Lost, protocol.Closed}
	_                                                                        = []error{protocol.ErrLost, protocol.ErrReleased, protocol.ErrClosed, protocol.ErrTooLarge, protocol.ErrSessionFull,
		protocol.ErrUncertain, protocol.ErrSequenceExhausted, protocol.ErrMixed}

	_ interface {
		ID() int64
		Timeout() time.Duration
		Deadline() time.Time
		Conn() *zk.Conn
		Path(path string) string
		Done() <-chan struct{}
		Err() error
		EphemeralBytes() int
	} = (*protocol.Session)(nil)
)

type (
	mutex interface {
		Lock(ctx context.Context) (*lock.Lease, error)
		TryLock(ctx context.Context) (*lock.Lease, error)
		Do(ctx context.Context, fn func(ctx context.Context, l *lock.Lease) error) error
		TryDo(ctx context.Context, fn func(ctx context.Context, l *lock.Lease) error) error
		Contenders(ctx context.Context) ([]lock.Contender, error)
		Break(ctx context.Context, node string) error
		Revoke(ctx context.Context, node string) error
	}
	rwMutex interface {
		Lock(ctx context.Context) (*rwlock.Lease, error)
		TryLock(ctx context.Context) (*rwlock.Lease, error)
		RLock(ctx context.Context) (*rwlock.Lease, error)
		TryRLock(ctx context.Context) (*rwlock.Lease, error)
		Do(ctx context.Context, fn func(ctx context.Context, l *rwlock.Lease) error) error
		RDo(ctx context.Context, fn func(ctx context.Context, l *rwlock.Lease) error) error
		Contenders(ctx context.Context) ([]rwlock.Contender, error)
		Break(ctx context.Context, node string) error
	}
)

var (
	_ func(*protocol.Client, string, ...lock.Option) *lock.Mutex  = lock.New
	_ func(*protocol.Client, string, ...lock.Option) *lock.Simple = lock.NewSimple
	_ func([]byte) lock.Option                                    = lock.WithData
	_ mutex                                                       = (*lock.Mutex)(nil)
	_ mutex                                                       = (*lock.Simple)(nil)
	_ func(*lock.Lease, ctx) error                                = (*lock.Lease).Unlock
	_ func(*lock.Lease) <-chan struct{}                           = (*lock.Lease).Revoked
	_ func(ctx, ...*lock.Mutex) (*lock.Leases, error)             = lock.LockAll
	_ func(*lock.Leases, ctx) error                               = (*lock.Leases).Unlock
	_                                                             = lock.Contender{Node: "", Session: 0, Token: 0, Data: nil, Since: time.Time{}, Holds: true}
	_ error                                                       = lock.ErrLocked

	_ func(*protocol.Client, string, ...rwlock.Option) *rwlock.RWMutex = rwlock.New
	_ rwMutex                                                          = (*rwlock.RWMutex)(nil)
	_ func(*rwlock.Lease, ctx) error                                   = (*rwlock.Lease).Unlock
	_ func(*rwlock.Lease) bool                                         = (*rwlock.Lease).Exclusive
	_ func(*rwlock.Lease, ctx) (*rwlock.Lease, error)                  = (*rwlock.Lease).Downgrade
	_ func(rwlock.Spelling) rwlock.Option                              = rwlock.WithSpelling
	_                                                                  = []rwlock.Spelling{rwlock.Native, rwlock.Curator, rwlock.Kazoo}
	_                                                                  = rwlock.Contender{Contender: lock.Contender{}, Exclusive: true}
	_ error                                                            = rwlock.ErrLocked

	_ func(*protocol.Client, string, int, ...semaphore.Option) *semaphore.Semaphore = semaphore.New
	_ func() semaphore.Option                                                       = semaphore.WithStrictPermits
	_ func(*semaphore.Permit, ctx) error                                            = (*semaphore.Permit).Release
	_                                                                               = []error{semaphore.ErrNoPermit, semaphore.ErrPermits}
	_ interface {
		Acquire(ctx context.Context) (*semaphore.Permit, error)
		TryAcquire(ctx context.Context) (*semaphore.Permit, error)
		Do(ctx context.Context, fn func(ctx context.Context, p *semaphore.Permit) error) error
		TryDo(ctx context.Context, fn func(ctx context.Context, p *semaphore.Permit) error) error
		Contenders(ctx context.Context) ([]semaphore.Contender, error)
		Break(ctx context.Context, node string) error
		Permits(ctx context.Context) (int, error)
		Resize(ctx context.Context, n int) error
	} = (*semaphore.Semaphore)(nil)
)

var (
	_ func(*protocol.Client, string, ...queue.Option) *queue.Queue = queue.New
	_ func(time.Duration) queue.ConsumeOption                      = queue.WithGrace
	_ func(time.Duration) queue.NackOption                         = queue.After
	_ func() queue.NackOption                                      = queue.AtTail
	_                                                              = []error{queue.ErrEmpty, queue.ErrFull}
	_                                                              = queue.Info{ID: "", Size: 0, Since: time.Time{}, Attempts: 0, Holder: 0, HeldSince: time.Time{}, Reason: ""}
	_ interface {
		Offer(ctx context.Context, data []byte) (id string, err error)
		OfferAll(ctx context.Context, items [][]byte) (ids []string, err error)
		OfferAfter(ctx context.Context, d time.Duration, data []byte) (id string, err error)
		OfferKey(ctx context.Context, key string, data []byte) (id string, err error)
		OfferWait(ctx context.Context, data []byte) (id string, err error)
		Take(ctx context.Context) ([]byte, error)
		Poll(ctx context.Context) ([]byte, error)
		PollN(ctx context.Context, max int) ([][]byte, error)
		Peek(ctx context.Context) ([]byte, error)
		Len(ctx context.Context) (int, error)
		Reserve(ctx context.Context) (*queue.Item, error)
		TryReserve(ctx context.Context) (*queue.Item, error)
		Items(ctx context.Context) iter.Seq2[*queue.Item, error]
		Consume(ctx context.Context, workers int, fn func(ctx context.Context, it *queue.Item) error, opts ...queue.ConsumeOption) error
		Redrive(ctx context.Context, dead *queue.Queue, max int) (int, error)
		List(ctx context.Context) iter.Seq2[queue.Info, error]
		Remove(ctx context.Context, id string) error
		Free(ctx context.Context, id string) error
		Drained(ctx context.Context) error
	} = (*queue.Queue)(nil)
	_ interface {
		ID() string
		Data() []byte
		Attempt() int
		Since() time.Time
		Nack(ctx context.Context, opts ...queue.NackOption) error
		Ack(ctx context.Context, ops ...any) error
	} = (*queue.Item)(nil)

	_ func(*protocol.Client, string, ...barrier.Option) *barrier.Barrier = barrier.New
	_ interface {
		Set(ctx context.Context) error
		Remove(ctx context.Context) error
		Wait(ctx context.Context) error
	} = (*barrier.Barrier)(nil)

	_ func(*protocol.Client, string, int, ...doublebarrier.Option) *doublebarrier.Barrier = doublebarrier.New
	_ func([]byte) doublebarrier.Option                                                   = doublebarrier.WithData
	_ error                                                                               = doublebarrier.ErrFull
	_ interface {
		Enter(ctx context.Context) (*doublebarrier.Entry, error)
		Do(ctx context.Context, fn func(ctx context.Context, e *doublebarrier.Entry) error) error
		Waiting(ctx context.Context) ([]doublebarrier.Waiter, error)
	} = (*doublebarrier.Barrier)(nil)
	_ interface {
		Leave(ctx context.Context) error
		Members() []string
		Round() int64
	} = (*doublebarrier.Entry)(nil)
)

var (
	_ func(*protocol.Client, string, ...election.Option) *election.Election = election.New
	_                                                                       = election.Leader{Value: nil, Token: 0, Node: "", Session: 0}
	_ func(election.Leader) bool                                            = election.Leader.Vacant
	_                                                                       = election.Candidate{Node: "", Session: 0, Token: 0, Value: nil, Since: time.Time{}}
	_ error                                                                 = election.ErrNoLeader
	_ interface {
		Campaign(ctx context.Context, value []byte) (*election.Term, error)
		Run(ctx context.Context, value []byte, lead func(context.Context, *election.Term) error) error
		Leader(ctx context.Context) (election.Leader, error)
		Observe(ctx context.Context) iter.Seq2[election.Leader, error]
		Candidates(ctx context.Context) ([]election.Candidate, error)
		Leading() (t *election.Term, ok bool)
	} = (*election.Election)(nil)
	_ interface {
		Resign(ctx context.Context) error
		ResignTo(ctx context.Context, node string) error
		Proclaim(ctx context.Context, value []byte) error
	} = (*election.Term)(nil)

	_ func(*protocol.Client, string, ...group.Option) *group.Group = group.New
	_ func(string) group.Option                                    = group.WithIdentity
	_ error                                                        = group.ErrNameTaken
	_                                                              = group.Peer{Name: "", Data: nil, Session: 0, Since: time.Time{}}
	_ func(*group.Assignment) string                               = (*group.Assignment).Item
	_ interface {
		Join(ctx context.Context, name string, data []byte) (*group.Member, error)
		TryJoin(ctx context.Context, name string, data []byte) (*group.Member, error)
		Members(ctx context.Context) ([]group.Peer, error)
		Watch(ctx context.Context) iter.Seq2[[]group.Peer, error]
		WatchData(ctx context.Context) iter.Seq2[[]group.Peer, error]
		Await(ctx context.Context, n int) ([]group.Peer, error)
	} = (*group.Group)(nil)
	_ interface {
		Set(ctx context.Context, data []byte) error
		Leave(ctx context.Context) error
		Joined() bool
		Changes() <-chan struct{}
		Share(ctx context.Context, items []string, work func(ctx context.Context, a *group.Assignment) error) error
		ShareAll(ctx context.Context, sets <-chan []string, work func(ctx context.Context, a *group.Assignment) error) error
	} = (*group.Member)(nil)

	_ func(*protocol.Client, string, ...once.Option) *once.Once = once.New
	_ func(int) once.Option                                     = once.WithKeep
	_ func(time.Duration) once.Option                           = once.WithRetention
	_ func(*once.Run) string                                    = (*once.Run).Key
	_ interface {
		Do(ctx context.Context, key string, fn func(ctx context.Context, r *once.Run) error) (ran bool, err error)
		Done(ctx context.Context, key string) (bool, error)
		Forget(ctx context.Context, key string) error
		Keys(ctx context.Context) iter.Seq2[once.Key, error]
	} = (*once.Once)(nil)

	_ func(*protocol.Client, string, ...value.Option) *value.Value = value.New
	_                                                              = value.State{Data: nil, Version: 0, Token: 0, Modified: time.Time{}}
	_ func(value.State) bool                                       = value.State.Unset
	_ error                                                        = value.ErrUnset
	_ interface {
		Get(ctx context.Context) (value.State, error)
		Set(ctx context.Context, data []byte) (value.State, error)
		Update(ctx context.Context, fn func(old value.State) (data []byte, err error)) (value.State, error)
		Delete(ctx context.Context) error
		Watch(ctx context.Context) iter.Seq2[value.State, error]
	} = (*value.Value)(nil)
)

var (
	_ func(testing.TB, ...recipestest.Option) *recipestest.Server = recipestest.Start
	_ func(time.Duration) recipestest.Option                      = recipestest.Lagging
	_ interface {
		ConnectString() string
		Client(tb testing.TB, opts ...protocol.ConnectOption) *protocol.Client
		Root(tb testing.TB) string
		ExpireSession(id int64)
		Link(tb testing.TB) *recipestest.Link
		Conn(tb testing.TB) *zk.Conn
		Dump(path string) string
	} = (*recipestest.Server)(nil)
	_ interface {
		Client(tb testing.TB, opts ...protocol.ConnectOption) *protocol.Client
		Cut()
		Stall()
		Heal()
		LoseReply(op recipestest.Op, n int)
		Delay(d time.Duration)
		Fail(op recipestest.Op, path string, code int32, n int)
		Trace() string
	} = (*recipestest.Link)(nil)

	_ func(embedded.Config) (*embedded.Server, error) = embedded.Start
	_ interface {
		ConnectString() string
		Close() error
	} = (*embedded.Server)(nil)
)
