package conn

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Not all clients begin with the first server.
func TestServersAreShuffled(t *testing.T) {
	t.Parallel()
	first := make(map[string]bool)
	for range 100 {
		first[shuffled([]string{"a", "b", "c"})[0]] = true
	}
	require.Greater(t, len(first), 1)
}

// (That names are resolved anew, and what is remembered of them, is tested in package protocol.)
func TestRouteHasEveryAddressOfEveryName(t *testing.T) {
	t.Parallel()
	found := map[string][]string{"a": {"10.0.0.1", "fe80::1"}, "b": {"10.0.0.2"}}
	e := testEnsemble()
	e.Servers = []string{"a:1", "b:2", "c:3", "10.0.0.9:4"}
	e.Lookup = func(_ context.Context, host string) ([]string, error) {
		if addresses := found[host]; addresses != nil {
			return slices.Clone(addresses), nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: host}
	}
	round := func(r *route) (all []string) {
		for first := true; first || len(r.round)+len(r.open) > 0; first = false {
			if next := r.next(t.Context(), time.Minute, search{}); next.err == nil {
				all = append(all, next.address)
			}
		}
		return all
	}
	r := newRoute(e)
	require.ElementsMatch(t, []string{"10.0.0.1:1", "[fe80::1]:1", "10.0.0.2:2", "10.0.0.9:4"}, round(r))
	require.Equal(t, 5, r.len(), "with one that has no address")

	// A dialer gets the names, which certificates are issued for.
	e.Lookup = nil
	r = newRoute(e)
	all := round(r)
	require.ElementsMatch(t, e.Servers, all)
	r.worked(target{server: all[1]})
	require.Equal(t, slices.Concat(all[2:], all[:2]), round(r), "the next one first")
}

// TestHostsThatComeWithAnErrorAreNotKept has a resolver that returns both. With each lookup a
// session would have one more address to dial, for as long as the name does not resolve.
func TestHostsThatComeWithAnErrorAreNotKept(t *testing.T) {
	t.Parallel()
	e := testEnsemble()
	e.Servers = []string{"a:1"}
	failing := error(nil)
	e.Lookup = func(context.Context, string) ([]string, error) { return []string{"10.0.0.1"}, failing }
	r := newRoute(e)
	for range 3 {
		require.Equal(t, "10.0.0.1:1", r.next(t.Context(), time.Minute, search{resumes: true}).address)
		require.Equal(t, 1, r.len())
		failing = &net.DNSError{Err: "no answer from the second server", Name: "a"}
	}
}
