package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/pace"
)

// A View has the options in which clients with the same sessions can differ.
type View struct {
	Setup      *Setup
	ACLFor     func(path string) []zk.ACL // nil: the default
	AnyACL     bool                       // ACLFor returns an ACL for every path
	OwnerData  []byte                     // the data of contenders' nodes that are given none
	NewBackOff func() backoff.BackOff     // nil: the default
	Log        *slog.Logger
	Observed   bool  // there is an observer
	Err        error // a bad option, which the first operation returns
}

// ACL returns the ACL for a node that is to be created. The path has no chroot. If the ACL function
// fails, the ACL says so, and [Create] and [Multi] return its error.
func (v *View) ACL(path string) []zk.ACL {
	if v.ACLFor != nil {
		if acl := v.callACLFor(path); len(acl) > 0 {
			return acl
		}
	}
	if own := v.Setup.ownACL.Load(); own != nil {
		return *own
	}

	return openACL
}

// openACL is made once because each call asks for its ACL several times.
var openACL = zk.WorldACL(zk.PermAll)

func (v *View) callACLFor(path string) []zk.ACL {
	if v.AnyACL { // which no function of the user's returns
		return v.ACLFor(path)
	}

	// It is called where no caller's context is at hand, and while locks are held.
	ctx, cancel := context.WithTimeoutCause(context.Background(), v.Setup.Timeout, errACLBlocks)
	defer cancel()
	acl, err := pace.Call(ctx, "ACL function", func() ([]zk.ACL, error) { return v.ACLFor(path), nil }, nil)
	if err != nil {
		return []zk.ACL{{Scheme: failedScheme, ID: err.Error()}}
	}
	return acl
}

var errACLBlocks = errors.New("ACL function doesn't return")

// failedScheme is the scheme of an ACL that only has the error of the ACL function. An ACL is
// needed in many places, also in the background, but sent in two.
const failedScheme = "\x00failed"

// failureOf returns the error of the ACL function that has returned acl, or nil.
func failureOf(acl []zk.ACL) error {
	if len(acl) == 1 && acl[0].Scheme == failedScheme {
		return errors.New(acl[0].ID)
	}
	return nil
}

// NextPause returns the next pause of the view's back-off. If a context ends first, there is no
// pause.
func (v *View) NextPause(ctx, life context.Context, p *pace.Pauses) (time.Duration, error) {
	if v.NewBackOff == nil {
		return p.Default(DefaultBackOff), nil
	}

	// The user's function can block, so the call must not wait for it longer than this.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	d, err := p.Next(ctx, v.NewBackOff)
	if ctx.Err() != nil {
		return 0, nil
	}

	return d, err
}

// explain adds the client's identities to an error that says it lacks a permission.
func (v *View) explain(err error) error {
	switch {
	case err == nil, !errors.As(err, new(*conn.DeniedError)):
		return err
	case len(v.Setup.Credentials) == 0:
		return fmt.Errorf("%w (the client has no credentials: see WithAuth)", err)
	}
	return fmt.Errorf("%w (the client is %s)", err, v.Setup.Identities())
}

// DefaultBackOff returns the default back-off.
func DefaultBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}
