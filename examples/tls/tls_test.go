package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

// internal/real runs the example on a real server.
func TestOnlyClientsAndServersOfOneAuthorityMeet(t *testing.T) {
	var out strings.Builder
	require.NoError(t, show(t.Context(), &out))
	t.Log(out.String())
	require.Regexp(t, `^A client with a certificate comes\.\nThe client takes a lock, with token \d+\n`+
		`A client without a certificate comes\.\nIt is refused: connect to .*\n`+
		`A client that trusts another CA comes\.\nIt is refused: connect to .*\n$`, out.String())
}
