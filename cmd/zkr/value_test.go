package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestValue(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/limit"
		r := inProcess(t, s.ConnectString(), "", "value", "get", path)
		assert.Equal(t, exitBusy, r.status)
		assert.Contains(t, r.stderr, "not set")
		watch := begin(t, s.ConnectString(), "value", "watch", path)
		watch.output.await(t, `\A\n\z`)

		succeed(t, s.ConnectString(), "value", "set", path, "41")
		assert.Equal(t, "41", strings.TrimSpace(succeed(t, s.ConnectString(), "value", "get", path)))
		watch.output.await(t, `\A\n41\n\z`)
		assert.Contains(t, succeed(t, s.ConnectString(), "ps", path), "data, such as a value")
		succeed(t, s.ConnectString(), "value", "update", path, "--", "sh", "-c", "read -r n; echo $((n+1))")
		assert.Equal(t, "42", strings.TrimSpace(succeed(t, s.ConnectString(), "value", "get", path)))
		watch.output.await(t, `\A\n41\n.*42.*\n\z`)

		r = inProcess(t, s.ConnectString(), "", "value", "update", path, "--", "sh", "-c", "echo 7; exit 3")
		assert.Equal(t, 3, r.status)
		assert.Empty(t, r.stderr)
		r = inProcess(t, s.ConnectString(), "", "value", "update", path, "--", "no-such-command")
		assert.Equal(t, exitNotFound, r.status)
		assert.Contains(t, succeed(t, s.ConnectString(), "value", "get", path, "--json"), `"version":2`)

		r = inProcess(t, s.ConnectString(), "from stdin", "value", "set", path)
		require.Zero(t, r.status, r.stderr)
		assert.Equal(t, "from stdin", strings.TrimSpace(succeed(t, s.ConnectString(), "value", "get", path)))
		succeed(t, s.ConnectString(), "value", "delete", path)
		watch.output.await(t, `from stdin\n\n\z`)
		assert.Zero(t, watch.stop())
		for _, args := range [][]string{{"value"}, {"value", "set", path, "a", "b"}, {"value", "update", path}, {"value", "get", "relative"}} {
			assert.Equal(t, exitUsage, inProcess(t, s.ConnectString(), "", args...).status, args)
		}
	})
}
