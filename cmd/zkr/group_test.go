package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestGroupMembersAreShown(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/group"
		assert.Empty(t, succeed(t, s.ConnectString(), "group", "members", path))
		assert.Equal(t, "[]\n", succeed(t, s.ConnectString(), "group", "members", path, "--json"))
		watch := begin(t, s.ConnectString(), "group", "members", path, "--watch", "--json")
		watch.output.await(t, `\A\[\]\n\z`)

		g := group.New(client(t, s), path)
		member, err := g.Join(t.Context(), "b", []byte("10.0.0.4:80"))
		require.NoError(t, err)
		watch.output.await(t, `"name":"b"`)
		_, err = g.Join(t.Context(), "a", []byte("\x1b[2J"))
		require.NoError(t, err)
		assert.Equal(t, "b  SESSION  TIME  10.0.0.4:80\na  SESSION  TIME  \"\\x1b[2J\"\n",
			blank(succeed(t, s.ConnectString(), "group", "members", path), path))

		var members []map[string]any
		require.NoError(t, json.Unmarshal([]byte(succeed(t, s.ConnectString(), "group", "members", path, "--json")), &members))
		require.Len(t, members, 2)
		assert.Equal(t, "10.0.0.4:80", members[0]["data"])

		require.NoError(t, member.Leave(t.Context()))
		watch.output.await(t, `\n\[{"name":"a"[^\n]*\n\z`)
		assert.Zero(t, watch.stop())
	})
}

func TestWhatTheServerHidesOfAMemberIsLeftOut(t *testing.T) {
	for _, format := range []struct {
		json bool
		want string
	}{
		{true, `[{"name":"a","data":""}]` + "\n"},
		{false, `a    -  ""` + "\n"},
	} {
		var out strings.Builder
		require.NoError(t, (&app{stdout: &out, json: format.json}).printMembers([]group.Peer{{Name: "a"}}))
		assert.Equal(t, format.want, out.String())
	}
}
