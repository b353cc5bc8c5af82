package embedded_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestVersionsThatAreNotKnownAreRefused(t *testing.T) {
	_, err := embedded.Start(embedded.Config{Version: "3.7"})
	require.ErrorContains(t, err, `version "3.7"`)
}

func TestFourLetterWordsReportTheVersion(t *testing.T) {
	for version, want := range map[string]string{"": "3.8.0-", "3.8": "3.8.0-", "3.9": "3.9.3-"} {
		s, err := embedded.Start(embedded.Config{Version: version})
		require.NoError(t, err)
		require.Contains(t, word(t, s, "srvr"), "Zookeeper version: "+want)
		require.NoError(t, s.Close())
	}
}
