package interop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/real/interop"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// A mixed queue is one that another library uses, too.
type mixed struct {
	srv  *recipestest.Server
	peer *interop.Peer
	path string
	ours *queue.Queue
}

func mix(t *testing.T, srv *recipestest.Server, start func(testing.TB, string) *interop.Peer) *mixed {
	t.Helper()
	c := srv.Client(t)
	path := keep(t, c, srv.Root(t)+"/mixed")
	return &mixed{srv, start(t, srv.ConnectString()), path, queue.New(c, path)}
}

// polls makes a peer's consumer take the next entry.
func (m *mixed) polls(ctx context.Context, handle string) (string, error) {
	return m.peer.Start("poll", handle, m.path).Wait(ctx)
}

// Producers and consumers of Curator and of ours share a queue, both ways.
func TestCuratorOnTheSameQueue(t *testing.T) {
	t.Parallel()
	m := mix(t, ensemble.Real(t), interop.Curator)
	ctx := patient(t)

	// Producers of both libraries offer at the same time.
	const each = 40
	var offered []string
	var producing suite.Group
	for i := range each {
		ours, theirs := fmt.Sprint("ours-", i), fmt.Sprint("theirs-", i)
		offered = append(offered, ours, theirs)
		producing.Go(func() error { _, err := m.ours.Offer(ctx, []byte(ours)); return err })
		producing.Go(func() error {
			_, err := m.peer.Start("offer", fmt.Sprint("p", i%4), m.path, theirs).Wait(ctx)
			return err
		})
	}
	require.NoError(t, producing.Wait())
	n := suite.Got(m.ours.Len(ctx))(t)
	require.Equal(t, len(offered), n)

	// Curator takes the first entry, and does not meet one that is reserved.
	var first []string
	for range 4 {
		head := suite.Got(m.ours.Peek(ctx))(t)
		first = append(first, m.peer.Do(t, "poll", "c", m.path))
		require.Equal(t, string(head), first[len(first)-1])
	}
	it := reserve(t, m.ours)
	next := suite.Got(m.polls(ctx, "c"))(t)
	require.NotEqual(t, string(it.Data()), next)
	first = append(first, next)
	require.NoError(t, it.Nack(ctx))

	// Consumers of both libraries race for the other entries.
	taken := m.race(t, each)
	require.ElementsMatch(t, offered, slices.Concat(first, taken["ours"], taken["theirs"]), "each once")
	require.Empty(t, m.peer.Do(t, "poll", "c", m.path), "there are no entries, and it says so")
}

// race lets consumers of both kinds take entries at the same time. Theirs take up to most, and ours
// take the others.
func (m *mixed) race(t *testing.T, most int) map[string][]string {
	t.Helper()
	ctx := patient(t)
	var mu sync.Mutex
	taken := make(map[string][]string)
	take := func(kind string, most int, poll func() (string, error)) func() error {
		return func() error {
			for range most {
				data, err := poll()
				if err != nil || data == "" {
					return err
				}
				mu.Lock()
				taken[kind] = append(taken[kind], data)
				mu.Unlock()
			}
			return nil
		}
	}

	theirs, ours := suite.Group{}, suite.Group{}
	for i := range 2 {
		theirs.Go(take("theirs", most/2, func() (string, error) { return m.polls(ctx, fmt.Sprint("c", i)) }))
		q := queue.New(m.srv.Client(t), m.path)
		ours.Go(take("ours", most/2, func() (string, error) {
			data, err := q.Poll(ctx)
			if errors.Is(err, queue.ErrEmpty) {
				err = nil
			}
			return string(data), err
		}))
	}
	require.NoError(t, theirs.Wait())
	require.NoError(t, ours.Wait())
	for left := 1; left > 0; { // those that ours have claimed ahead come back first
		taken["ours"] = append(taken["ours"], drain(t, ctx, m.ours)...)
		n := suite.Got(m.ours.Len(ctx))(t)
		left = n
	}
	t.Logf("%d taken by us, %d by %s", len(taken["ours"]), len(taken["theirs"]), m.peer.Name())
	return taken
}

// While there are entries, kazoo's consumers take them beside ours, each once.
func TestKazooTakesEntriesWhileThereAreSome(t *testing.T) {
	t.Parallel()
	m := mix(t, ensemble.Real(t), interop.Kazoo)
	const n = 80
	suite.Got(m.ours.OfferAll(t.Context(), numbered(0, n)))(t)

	var first []string
	for range 4 {
		first = append(first, m.peer.Do(t, "poll", "c", m.path))
	}
	require.Equal(t, texts(numbered(0, 4)), first)

	const each = 20 // there are always some left
	taken := m.race(t, each)
	require.ElementsMatch(t, texts(numbered(4, n-4)), slices.Concat(taken["ours"], taken["theirs"]), "each once")
	require.Len(t, taken["theirs"], each)
}

// kazoo's Queue takes any child for an entry, by its name, and keeps a listing until it is used up.
// It fails at the node of our records when that is the last one.
func TestKazooTakesAnyChildForAnEntry(t *testing.T) {
	t.Parallel()
	m := mix(t, ensemble.Real(t), interop.Kazoo)
	ctx := patient(t)
	_, err := m.ours.OfferKey(ctx, "key", []byte("a")) // or the records may be reaped meanwhile
	require.NoError(t, err)
	offer(t, m.ours, "b")
	it := reserve(t, m.ours)
	// The reserved entry is out of sight for kazoo. A new Queue object lists the line again.
	require.Equal(t, "b", m.peer.Do(t, "poll", "c", m.path), "it does not meet a reserved entry")
	require.NoError(t, it.Nack(ctx))
	require.Equal(t, "a", m.peer.Do(t, "poll", "another Queue object still", m.path))

	for range 2 {
		require.ErrorContains(t, suite.Err(m.polls(ctx, "c")), "NotEmptyError", "it has come to the records")
	}
	// The listing of this Queue object still begins with the records, but a new Queue object works.
	offer(t, m.ours, "c")
	require.ErrorContains(t, suite.Err(m.polls(ctx, "c")), "NotEmptyError", "its listing is not used up")
	require.Equal(t, "c", m.peer.Do(t, "poll", "another Queue object", m.path))
}

// Our consumers take what kazoo's producers offer, by priority and then in order.
func TestKazooOffersToUs(t *testing.T) {
	t.Parallel()
	m := mix(t, ensemble.Real(t), interop.Kazoo)
	q := queue.New(m.srv.Client(t), m.path, queue.WithPriorities())
	m.peer.Do(t, "offer", "p", m.path, "theirs")
	offer(t, q, "ours")
	m.peer.Do(t, "offer", "p", m.path, "theirs, urgent", "5")
	suite.Got(q.OfferPriority(t.Context(), 5, []byte("ours, urgent")))(t)
	require.ErrorIs(t, suite.Err(m.ours.Poll(t.Context())), queue.ErrEmpty, "it is not made WithPriorities")
	require.Equal(t, []string{"theirs, urgent", "ours, urgent", "theirs", "ours"}, drain(t, patient(t), q))
}
