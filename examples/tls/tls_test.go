package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyClientsAndServersOfOneAuthorityMeet(t *testing.T) {
	var out strings.Builder
	require.NoError(t, show(t.Context(), &out))
	t.Log(out.String())
	require.Contains(t, out.String(), "A client with a certificate takes a lock.")
	require.Contains(t, out.String(), "A client without a certificate does not: connect to ")
	require.Contains(t, out.String(), "A client that trusts another CA does not: connect to ")
}
