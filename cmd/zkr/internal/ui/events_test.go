package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
)

// shows publishes a tree that has locks at these paths.
func shows(h *Hub, paths ...string) {
	root := &survey.Place{Path: "/", Recipe: survey.Directory}
	for _, path := range paths {
		root.Below = append(root.Below, &survey.Place{Path: path, Recipe: survey.Lock})
	}
	h.publish(root, time.Now())
}

// setIn returns the paths that a message sets.
func setIn(t *testing.T, m message) (paths []string) {
	for _, text := range m.Set {
		var r row
		require.NoError(t, json.Unmarshal(text, &r))
		paths = append(paths, r.Path)
	}
	return paths
}

func TestBrowserMissesNothingBetweenTwoVersions(t *testing.T) {
	h := NewHub(Config{Path: "/"})
	shows(h, "/a", "/b")
	m, version, changed := h.since(-1)
	require.NotNil(t, m.Reset)
	require.ElementsMatch(t, []string{"/a", "/b"}, setIn(t, m))

	// A row that has gone and come back is not told of as removed.
	shows(h, "/b")
	shows(h, "/a", "/b", "/c")
	<-changed
	m, _, _ = h.since(version)
	require.Nil(t, m.Reset)
	require.ElementsMatch(t, []string{"/a", "/c"}, setIn(t, m))
	require.Empty(t, m.Removed)

	shows(h, "/c")
	m, version, changed = h.since(version)
	require.Equal(t, []string{"/c"}, setIn(t, m))
	require.Equal(t, map[string]bool{id("/a"): true, id("/b"): true}, setOf(m.Removed))
	shows(h, "/c")
	require.Empty(t, changed, "nothing has changed")
	m, _, _ = h.since(version)
	require.Empty(t, m.Set)
	require.Empty(t, m.Removed)
}

func TestBrowserThatHasMissedTooMuchIsToldAll(t *testing.T) {
	h := NewHub(Config{Path: "/"})
	shows(h, "/kept", "/first")
	_, before, _ := h.since(-1)
	shows(h, "/kept")
	_, after, _ := h.since(-1)
	var many []string
	for i := range maxRemoved - 1 {
		many = append(many, fmt.Sprintf("/many/%d", i))
	}
	shows(h, append(many, "/kept")...)
	shows(h, "/kept")

	// One more removal, and the first one would be forgotten.
	m, _, _ := h.since(before)
	require.NotNil(t, m.Reset)
	require.Equal(t, []string{"/kept"}, setIn(t, m))
	require.Empty(t, m.Removed)
	m, _, _ = h.since(after)
	require.Nil(t, m.Reset)
	require.Len(t, m.Removed, maxRemoved-1)
}

func TestBrowsersAreLimited(t *testing.T) {
	h := NewHub(Config{Path: "/"})
	for range maxBrowsers {
		require.True(t, h.enter())
	}
	w := httptest.NewRecorder()
	h.serveEvents(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.True(t, h.watched())
	for range maxBrowsers {
		h.leave()
	}
	require.False(t, h.watched())
	require.True(t, h.enter())
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool)
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// scripted is a view whose looks a test answers. No watch of it ever fires.
type scripted struct{ looks chan error }

func (s scripted) Look(ctx context.Context, _ bool) (*survey.Place, error) {
	select {
	case err := <-s.looks:
		return &survey.Place{Path: "/", Recipe: survey.Lock}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (scripted) Changed() bool                 { return false }
func (scripted) Confirm(context.Context) error { return nil }
func (scripted) Ended(string) survey.End       { return "" }
func (scripted) Requests() int64               { return 0 }

func TestLookThatFailsIsRepeatedWithoutABrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(Config{Path: "/", Interval: time.Second, Idle: time.Second, Rate: 1})
		s := scripted{looks: make(chan error)}
		h.view = s
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go h.Run(ctx)
		answer := func(err error) {
			select {
			case s.looks <- err:
			case <-ctx.Done():
				require.FailNow(t, "it does not look")
			}
			synctest.Wait()
		}

		answer(errors.New("refused"))
		m, _, _ := h.since(-1)
		require.Equal(t, "refused", m.Status.Error)
		require.False(t, m.Ready)

		answer(nil)
		m, _, _ = h.since(-1)
		require.Empty(t, m.Status.Error)
		require.True(t, m.Ready)
		require.Equal(t, []string{"/"}, setIn(t, m))
	})
}
