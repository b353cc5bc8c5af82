package doctor

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVersionsThatForgetTransactionsAreKnown(t *testing.T) {
	for version, want := range map[string]bool{
		"3.4.13": true, "3.7.2": true, "3.8.0": true, "3.8.3": true, "3.9.1": true, "3.9.3": true,
		"3.8.4": false, "3.9.2": false, "3.9.4": false, "3.10.0": false, "4.0.0": false, "": false,
	} {
		assert.Equal(t, want, forgets(version), version)
	}
}
