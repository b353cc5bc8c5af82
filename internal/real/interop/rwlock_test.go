package interop_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/real/interop"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func oursRW(spelling rwlock.Spelling) newcomer {
	return func(t *testing.T, srv *recipestest.Server, path string, exclusive bool) contender {
		m := rwlock.New(srv.Client(t), path, rwlock.WithSpelling(spelling))
		if exclusive {
			return of(m.Lock, false)
		}
		return of(m.RLock, true)
	}
}

// In a line of contenders r and w are our reader and writer, R and W the other library's.
func TestOtherLibrariesOnTheSamePath(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	for name, library := range map[string]struct {
		start    func(testing.TB, string) *interop.Peer
		spelling rwlock.Spelling
		lines    []string
	}{
		"Curator": {interop.Curator, rwlock.Curator, []string{"wWrRrRwWRr", "WrRwRrWW", "RrwRrW", "rRWrRw"}},
		// A waiting kazoo reader must be the last in line, or it may wait for the writers behind
		// it, too.
		"kazoo": {interop.Kazoo, rwlock.Kazoo, []string{"wWrrwWrR", "WrrWwrR", "RrwrW", "rRWrwR"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			others := peer(library.start(t, srv.ConnectString()), "wlock", "rlock")
			for _, line := range library.lines {
				t.Run(line, func(t *testing.T) {
					t.Parallel()
					shareTurns(t, srv, line, oursRW(library.spelling), others)
				})
			}

			t.Run("downgrade", func(t *testing.T) {
				t.Parallel()
				downgradeAmong(t, srv, library.spelling, others)
			})
		})
	}
}

// shareTurns makes the contenders come to one lock, one after the other.
func shareTurns(t *testing.T, srv *recipestest.Server, line string, ours, others newcomer) {
	path := srv.Root(t) + "/fleet"
	var contenders []contender
	for _, who := range line {
		library, exclusive := ours, who == 'w' || who == 'W'
		if who == 'R' || who == 'W' {
			library = others
		}
		contenders = append(contenders, library(t, srv, path, exclusive))
	}
	acquireInOrder(t, srv, path, contenders)
}

// downgradeAmong makes a reader and a writer of the other library wait for our writer, which goes
// on to read.
func downgradeAmong(t *testing.T, srv *recipestest.Server, spelling rwlock.Spelling, others newcomer) {
	path := srv.Root(t) + "/down"
	m := rwlock.New(srv.Client(t), path, rwlock.WithSpelling(spelling))
	writing := suite.Must(t, m.Lock)
	ctx := suite.Within(t, 2*suite.Limit)
	// Each contender is in line before the next comes, so that the order is known.
	call := func(exclusive bool, n int) (unlock func(context.Context) error, granted chan error) {
		granted = make(chan error, 1)
		c := others(t, srv, path, exclusive)
		go func() { granted <- c.Lock(ctx) }()
		suite.Await(t, n, m.Contenders)
		return c.Unlock, granted
	}

	unlockReader, reader := call(false, 2)
	var unlockWriter func(context.Context) error
	var writer chan error
	if spelling != rwlock.Kazoo { // a waiting kazoo reader must have no writer behind it
		unlockWriter, writer = call(true, 3)
	}

	reading := suite.Must(t, writing.Downgrade)
	require.NoError(t, <-reader, "both read")
	if writer == nil {
		unlockWriter, writer = call(true, 3)
	}

	// The writer waits until both readers have unlocked.
	require.NoError(t, unlockReader(ctx))
	require.Never(t, func() bool { return len(writer) > 0 }, 200*time.Millisecond, 10*time.Millisecond)
	require.NoError(t, reading.Err())
	suite.Unlock(t, reading)
	require.NoError(t, <-writer)
	require.NoError(t, unlockWriter(ctx))
}
