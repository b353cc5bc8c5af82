package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProcessThatUsesMoreAtEachRestIsFound(t *testing.T) {
	first := usage{30, 12, 4 << 20}
	require.NoError(t, usage{40, 14, 8 << 20}.exceeds(first))
	for _, u := range []usage{{51, 12, 4 << 20}, {30, 23, 4 << 20}, {30, 12, 25 << 20}} {
		require.ErrorContains(t, u.exceeds(first), "after its first round")
	}
}
