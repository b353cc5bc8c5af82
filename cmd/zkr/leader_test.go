package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestLeaderIsShown(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/leader"
		r := inProcess(t, s.ConnectString(), "", "leader", path)
		assert.Equal(t, exitBusy, r.status)
		assert.Contains(t, r.stderr, "no leader")
		r = inProcess(t, s.ConnectString(), "", "leader", path, "--wait", "50ms")
		assert.Contains(t, outOfTime, r.status, r.stderr)

		watch := begin(t, s.ConnectString(), "leader", path, "--watch")
		watch.output.await(t, `\A\n\z`)
		waiter := begin(t, s.ConnectString(), "leader", path, "--wait", "1m")

		term, err := election.New(client(t, s), path).Campaign(t.Context(), []byte("http://a:80"))
		require.NoError(t, err)
		waiter.output.await(t, `http://a:80\n`)
		require.Zero(t, waiter.stop())
		watch.output.await(t, `\A\nhttp://a:80\n\z`)
		assert.Equal(t, "http://a:80\n", succeed(t, s.ConnectString(), "leader", path))

		require.NoError(t, term.Proclaim(t.Context(), []byte("\x1b[2J\xff")))
		watch.output.await(t, `\A\nhttp://a:80\n"\\x1b\[2J\\xff"\n\z`)
		assert.Contains(t, succeed(t, s.ConnectString(), "leader", path, "--json"), `"data_base64":"G1sySv8="`)
		assert.Zero(t, watch.stop())

		require.NoError(t, term.Resign(t.Context()))
		watch = begin(t, s.ConnectString(), "leader", path, "--watch", "--json")
		watch.output.await(t, `\A{"vacant":true}\n\z`)
		assert.Zero(t, watch.stop())
	})
}
