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
	round := func(r *route, resumes bool) (all []string) {
		for first := true; first || len(r.round)+len(r.open) > 0; first = false {
			if next := r.next(t.Context(), time.Minute, search{resumes: resumes}); next.err == nil {
				all = append(all, next.address)
			}
		}
		return all
	}
	r := newRoute(e)
	require.ElementsMatch(t, []string{"10.0.0.1:1", "[fe80::1]:1", "10.0.0.2:2", "10.0.0.9:4"}, round(r, false))
	require.Equal(t, 5, r.len(), "with one that has no address")
	found["b"] = []string{"10.0.0.3"}
	require.Contains(t, round(r, false), "10.0.0.3:2", "names are resolved anew")

	delete(found, "a")
	require.Contains(t, round(r, true), "10.0.0.1:1", "a name that does not resolve any more")
	require.NotContains(t, round(r, false), "10.0.0.1:1", "and no session to resume there")

	// A dialer gets the names, which certificates are issued for.
	e.Lookup = nil
	r = newRoute(e)
	all := round(r, false)
	require.ElementsMatch(t, e.Servers, all)
	r.worked(target{server: all[1]})
	require.Equal(t, slices.Concat(all[2:], all[:2]), round(r, false), "the next one first")
}
