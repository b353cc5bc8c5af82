package recipe

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

// Do runs op under s until its outcome is definite. op makes one call of zk.Conn. If the connection
// breaks, Do repeats op (with the client's back-off between the attempts) even if the server has
// perhaps executed it. So op must be safe to repeat: a read, or the deletion of a name that is
// never used again (with [zk.ErrNoNode] as success). For other operations use [DoOnce].
//
// Do blocks until the server has answered, and returns the answer ([zk.ErrNoNode] for example). If
// ctx ends first, it returns ctx's error. If the session ends first, the error wraps
// [protocol.ErrLost]. After [protocol.Client.Close] it wraps [protocol.ErrClosed]. The call under
// way then goes on, and its result is dropped. Do is safe for concurrent use.
func Do[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error)) (T, error) {
	return session.Do(ctx, &s.bound, op)
}

// DoOnce is Do for an op that must not happen twice. After an attempt that was perhaps executed, it
// makes a [Session.Fence] and calls settle to look for the effect of the attempt. If done is true,
// the attempt was executed and DoOnce returns settle's result. Otherwise it was not executed and
// never will be, and DoOnce calls op again. DoOnce returns an error of settle as it is: the outcome
// is then unknown. It doesn't call settle once ctx or s has ended.
//
// If DoOnce ends (because of ctx, s or the back-off) while it is not known whether an attempt was
// executed, its error also wraps [protocol.ErrUncertain].
//
// If the client's back-off ends by itself, Do and DoOnce return the last error. Work that gets its
// ctx from [Detach] or [Session.Go] must run to completion: its caller gets that error, and the
// work goes on with the default back-off until it is done or the session ends.
func DoOnce[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error),
	settle func(context.Context) (v T, done bool, err error)) (T, error) {
	return session.DoOnce(ctx, &s.bound, op, settle)
}

// Create calls Create of c. Call it from the function for [Do] or [DoOnce]. It blocks until the
// server has answered or the connection breaks.
//
// If the flags are [zk.FlagContainer], it creates a container (zk.Conn's Create does not). A
// request that is too large for the server would cost all users of the session their connection. So
// Create refuses it with [protocol.ErrTooLarge] (by the limit of [protocol.WithRequestLimit]). If
// the session has no room for another ephemeral node, it returns [protocol.ErrSessionFull]. In both
// cases nothing is sent. All other errors come from c. Create is safe for concurrent use.
func Create(c *zk.Conn, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	return session.Create(c, path, data, flags, acl)
}

// Set calls Set of c. It refuses data that is too large as [Create] does.
func Set(c *zk.Conn, path string, data []byte, version int32) (*zk.Stat, error) {
	return session.Set(c, path, data, version)
}

// Delete calls Delete of c.
func Delete(c *zk.Conn, path string, version int32) error { return session.Delete(c, path, version) }

// Multi calls Multi of c. It refuses transactions as [Create] does. (One size just above the limit
// would make zk.Conn panic.)
func Multi(c *zk.Conn, ops ...any) ([]zk.MultiResponse, error) { return session.Multi(c, ops...) }

// MultiSize returns the size in bytes of the request that [Multi] sends for these operations.
func MultiSize(ops ...any) int { return session.MultiSize(ops...) }

// OutcomeUnknown reports whether the server has perhaps executed a call of [zk.Conn] that returned
// err, or can still execute it.
func OutcomeUnknown(err error) bool { return conn.OutcomeOf(err) == conn.Unknown }

// Linger returns a context that ends d after ctx (with the same error) and has the values of ctx. A
// call that needs a moment to clean up after ctx uses it. stop releases the context.
func Linger(ctx context.Context, d time.Duration) (_ context.Context, stop func() bool) {
	return session.Linger(ctx, d)
}
