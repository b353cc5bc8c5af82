package once_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

const (
	noAuth         = -102
	connectionLoss = -4
)

// prepared returns a Once whose directories exist, and the link of its client.
func prepared(t *testing.T, opts ...once.Option) (o *once.Once, link *recipestest.Link, c *protocol.Client, path string) {
	srv := recipestest.Start(t)
	link, path = srv.Link(t), srv.Root(t)+"/once"
	c = link.Client(t)
	o = once.New(c, path, opts...)
	requireRan(t, do(t, o, "first", nothing))
	return o, link, c, path
}

// then is a run that ends with a fault of the network.
func then(fault func()) func(context.Context, int64) error {
	return func(context.Context, int64) error {
		fault()
		return nil
	}
}

func TestRefusedRecordIsNoUncertainty(t *testing.T) {
	o, link, _, _ := prepared(t)
	got := do(t, o, "a", then(func() { link.Fail(recipestest.OpMulti, "", noAuth, 1) }))
	require.ErrorIs(t, got.err, zk.ErrNoAuth)
	require.NotErrorIs(t, got.err, protocol.ErrUncertain)
	requireRan(t, do(t, o, "a", nothing))
}

// The servers answer that they do not know whether they have carried the transaction out. They have
// not, so it is sent again.
func TestRecordOfUnknownOutcomeIsRepeated(t *testing.T) {
	o, link, _, _ := prepared(t)
	requireRan(t, do(t, o, "a", then(func() { link.Fail(recipestest.OpMulti, "", connectionLoss, 1) })))
	requireDone(t, do(t, o, "a", nothing))
}

func TestRecordIsUncertainIfItCannotBeLookedFor(t *testing.T) {
	o, link, _, _ := prepared(t)
	got := do(t, o, "a", then(func() {
		link.Fail(recipestest.OpMulti, "", connectionLoss, 1)
		link.Fail(recipestest.OpSync, "", noAuth, 1)
	}))
	require.ErrorIs(t, got.err, protocol.ErrUncertain)
	require.ErrorIs(t, got.err, zk.ErrNoAuth)
}

func TestKeyThatCannotBeLookedUpDoesNotRun(t *testing.T) {
	o, link, _, _ := prepared(t)
	link.Fail(recipestest.OpExists, "", noAuth, 1)
	got := do(t, o, "a", nothing)
	require.ErrorIs(t, got.err, zk.ErrNoAuth)
	require.False(t, got.ran)
}

// The key is looked up again when the call before has ended.
func TestKeyThatCannotBeLookedUpAfterAWaitDoesNotRun(t *testing.T) {
	srv := recipestest.Start(t)
	link, path := srv.Link(t), srv.Root(t)+"/once"
	c := link.Client(t)
	o := once.New(c, path)
	first, run := srv.Client(t), newBlocked()
	one := later(t.Context(), once.New(first, path), "a", run.fn)
	<-run.began
	two := later(t.Context(), o, "a", nothing)
	calls(t, c, path, 2)
	link.Fail(recipestest.OpExists, path+"/done/a", noAuth, 1)
	run.result <- errFailed
	require.ErrorIs(t, (<-one).err, errFailed)
	got := <-two
	require.ErrorIs(t, got.err, zk.ErrNoAuth)
	require.False(t, got.ran)
}

func TestRefusedDirectoryEndsTheCall(t *testing.T) {
	srv := recipestest.Start(t)
	link := srv.Link(t)
	o := once.New(link.Client(t), srv.Root(t)+"/once")
	got := do(t, o, "a", then(func() { link.Fail(recipestest.OpCreateContainer, "", noAuth, 1) }))
	require.ErrorIs(t, got.err, zk.ErrNoAuth)
}

// An entry whose key cannot be looked at is left to the next call, with its key.
func TestKeyThatCannotBeLookedAtIsForgottenLater(t *testing.T) {
	o, link, c, path := prepared(t, once.WithKeep(1))
	requireRan(t, do(t, o, "a", then(func() { link.Fail(recipestest.OpExists, path+"/done/first", noAuth, 1) })))
	requireRan(t, do(t, o, "b", nothing))
	require.Equal(t, []string{"b"}, remembered(t, c, path))
}

// The call has succeeded, so its caller is not told. The log is.
func TestKeysThatCannotBeForgottenAreLogged(t *testing.T) {
	_, link, c, path := prepared(t)
	var log strings.Builder
	view := c.With(protocol.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	o := once.New(view, path, once.WithKeep(1))
	requireRan(t, do(t, o, "a", then(func() { link.Fail(recipestest.OpGetChildren, path+"/order", noAuth, 1) })))
	require.Contains(t, log.String(), "old keys are not forgotten")
	require.Contains(t, log.String(), path)
}

func TestNumbersOfKeysToKeep(t *testing.T) {
	_, _, c, path := prepared(t)
	for n, valid := range map[int]bool{0: false, 1: true, 100_000: true, 100_001: false} {
		got := do(t, once.New(c, path, once.WithKeep(n)), fmt.Sprint(n), nothing)
		if valid {
			requireRan(t, got)
		} else {
			require.ErrorContains(t, got.err, "WithKeep")
		}
	}
}
