package recipe

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

// Do runs op, which makes one call of zk.Conn, under s until its outcome is definite: it is
// repeated, with the client's back-off in between, when the connection broke, whether or not the
// server may have executed it. So op must be safe to repeat, as reads are, and deletes of names
// that are never used again if [zk.ErrNoNode] is taken for success. [DoOnce] is for those that are
// not.
//
// Do blocks until the server has answered, and returns what it said, [zk.ErrNoNode] for example. If
// ctx ends first it returns ctx's error, if the session is over an error that wraps
// [protocol.ErrLost], after [protocol.Client.Close] one that wraps [protocol.ErrClosed]; the call
// that is under way then goes on behind its back and what it returns is dropped. It is safe for
// concurrent use.
func Do[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error)) (T, error) {
	return session.Do(ctx, &s.bound, op)
}

// DoOnce is Do for an op that must not happen twice. After an attempt that may have been executed
// it makes a [Session.Fence], and then calls settle, which looks whether it was: done reports that,
// and then the result is settle's. Otherwise the attempt was not executed and never will be, and op
// is called again. An error of settle is returned as it is: the outcome is then unknown. settle is
// not called once ctx has ended or s is over.
//
// If DoOnce ends while it is not known whether an attempt was executed, because of ctx, of s or of
// the back-off, its error also wraps [protocol.ErrUncertain].
//
// Where the client's back-off ends by itself Do and DoOnce return the last error. Work that must be
// finished, which is what gets its ctx from [Detach] or [Session.Go], is different: its caller gets
// that error, and the work goes on with the default back-off until it is done or the session is
// over.
func DoOnce[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error),
	settle func(context.Context) (v T, done bool, err error)) (T, error) {
	return session.DoOnce(ctx, &s.bound, op, settle)
}

// Create calls Create of c. Call it from the function that is given to [Do] or [DoOnce]. It blocks
// until the server has answered or the connection breaks.
//
// If the flags are [zk.FlagContainer] it creates a container, which zk.Conn's Create does not. A
// request that is too large for the server would cost all users of the session their connection:
// Create refuses it with [protocol.ErrTooLarge], by the limit of [protocol.WithRequestLimit]. If
// the node is ephemeral and the session has no room for it, it returns [protocol.ErrSessionFull].
// Then nothing is sent. All other errors are those of c. Create is safe for concurrent use.
func Create(c *zk.Conn, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	return session.Create(c, path, data, flags, acl)
}

// Set calls Set of c. It refuses data that is too large as [Create] does.
func Set(c *zk.Conn, path string, data []byte, version int32) (*zk.Stat, error) {
	return session.Set(c, path, data, version)
}

// Delete calls Delete of c.
func Delete(c *zk.Conn, path string, version int32) error { return session.Delete(c, path, version) }

// Multi calls Multi of c. It refuses transactions as [Create] does. One size just above the limit
// would make zk.Conn panic.
func Multi(c *zk.Conn, ops ...any) ([]zk.MultiResponse, error) { return session.Multi(c, ops...) }

// MultiSize returns the size in bytes of the request that [Multi] sends for these operations.
func MultiSize(ops ...any) int { return session.MultiSize(ops...) }

// OutcomeUnknown reports whether err, which a call of [zk.Conn] has returned, leaves open if the
// server has executed the request or may yet do so.
func OutcomeUnknown(err error) bool { return conn.OutcomeOf(err) == conn.Unknown }

// Linger returns a context that ends d after ctx, with the same error, and has the values of ctx. It
// is for calls that need a moment to find out, or to clean up, when ctx has ended. stop releases it.
func Linger(ctx context.Context, d time.Duration) (_ context.Context, stop func() bool) {
	return session.Linger(ctx, d)
}
