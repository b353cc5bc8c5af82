package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
)

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
