package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
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
	removed := slices.Compact(slices.Sorted(slices.Values(m.Removed)))
	require.ElementsMatch(t, []string{id("/a"), id("/b")}, removed)
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

// What a look has not read keeps its row, and nothing is said to have happened there.
func TestUnreadPathsMakeNoEvents(t *testing.T) {
	held := func(path string, token int64) *survey.Place {
		return &survey.Place{Path: path, Recipe: survey.Lock, Contenders: []survey.Contender{{Node: "n", State: survey.Holds, Token: token}}}
	}
	tree := func(unread []string, below ...*survey.Place) *survey.Place {
		return &survey.Place{Path: "/", Recipe: survey.Directory, Below: []*survey.Place{
			{Path: "/locks", Recipe: survey.Directory, Below: below, Unread: unread},
		}}
	}
	all := func() *survey.Place { return tree(nil, held("/locks/a", 1), held("/locks/b", 2)) }
	hidden := &survey.Place{Path: "/locks/b", Recipe: survey.Hidden}
	for name, c := range map[string]struct {
		looks  []*survey.Place
		events []string // after the first look
		rows   []string
	}{
		"cut off and back":     {[]*survey.Place{all(), tree([]string{"b"}, held("/locks/a", 1)), all()}, nil, []string{"/locks/a", "/locks/b"}},
		"cut off":              {[]*survey.Place{all(), tree([]string{"b"}, held("/locks/a", 1))}, nil, []string{"/locks/a", "/locks/b"}},
		"cut off twice":        {[]*survey.Place{all(), tree([]string{"a", "b"}), tree([]string{"a", "b"})}, nil, []string{"/locks/a", "/locks/b"}},
		"read at last":         {[]*survey.Place{tree([]string{"b"}, held("/locks/a", 1)), all()}, nil, []string{"/locks/a", "/locks/b"}},
		"passed on meanwhile":  {[]*survey.Place{all(), tree([]string{"a", "b"}), tree(nil, held("/locks/a", 1), held("/locks/b", 3))}, []string{handedOver}, []string{"/locks/a", "/locks/b"}},
		"gone":                 {[]*survey.Place{all(), tree(nil, held("/locks/a", 1))}, []string{ended}, []string{"/locks/a"}},
		"gone while cut off":   {[]*survey.Place{all(), tree([]string{"b"}, held("/locks/a", 1)), tree(nil, held("/locks/a", 1))}, []string{ended}, []string{"/locks/a"}},
		"hidden by an ACL":     {[]*survey.Place{all(), tree(nil, held("/locks/a", 1), hidden), all()}, nil, []string{"/locks/a", "/locks/b"}},
		"its parent is hidden": {[]*survey.Place{all(), {Path: "/", Recipe: survey.Hidden}, all()}, nil, []string{"/locks/a", "/locks/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewHub(Config{Path: "/"})
			for _, look := range c.looks {
				h.publish(look, time.Now())
			}
			m, _, _ := h.since(-1)
			var kinds []string
			for _, e := range m.Events {
				require.Empty(t, e.End)
				kinds = append(kinds, e.Kind)
			}
			require.Equal(t, c.events, kinds)
			require.ElementsMatch(t, c.rows, setIn(t, m))
		})
	}
}

func TestMetricsTellTheAgeOfWhatGoesOn(t *testing.T) {
	h := NewHub(Config{Path: "/"})
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	line := func(state survey.State) *survey.Place {
		return &survey.Place{Path: "/a", Recipe: survey.Lock, Contenders: []survey.Contender{
			{Node: "a", Token: 1, State: survey.Holds, Since: ago(time.Hour)},
			{Node: "b", Token: 2, State: state, Since: ago(30 * time.Minute)},
		}}
	}
	get := func() string {
		w := httptest.NewRecorder()
		h.serveMetrics(w, nil)
		return w.Body.String()
	}
	require.Contains(t, get(), "zkr_up 0\n")
	h.publish(line(survey.Waits), time.Now())
	m := get()
	require.Contains(t, m, "zkr_up 1\n")
	require.Contains(t, m, "# TYPE zkr_waiters gauge\nzkr_waiters{path=\"/a\",recipe=\"lock\"} 1\n")
	require.Regexp(t, `zkr_oldest_holder_line_seconds\{path="/a",recipe="lock"\} 36\d\d`, m)
	require.Regexp(t, `zkr_oldest_wait_seconds\{path="/a",recipe="lock"\} 18\d\d`, m)
	require.NotContains(t, m, "zkr_oldest_hold_seconds", "that is not known")

	// The page sees a hand-over, and so since when the next one holds.
	next := line(survey.Holds)
	next.Contenders = next.Contenders[1:]
	h.publish(next, ago(time.Minute))
	require.Regexp(t, `zkr_oldest_hold_seconds\{path="/a",recipe="lock"\} [6-9]\d`, get())
	require.Regexp(t, `zkr_oldest_holder_line_seconds\{path="/a",recipe="lock"\} 18\d\d`, get())

	// What may not be listed is unknown, and so is all while no server answers.
	h.publish(&survey.Place{Path: "/", Recipe: survey.Directory, Below: []*survey.Place{line(survey.Waits), {Path: "/h", Recipe: survey.Hidden}}}, time.Now())
	m = get()
	require.Contains(t, m, "zkr_paths_unread 1\n")
	require.NotContains(t, m, `"/h"`)
	h.answered(false)
	m = get()
	require.Contains(t, m, "zkr_up 0\n")
	require.NotContains(t, m, "path=")
}
