package election_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestElectionLinksNoTestDependencies(t *testing.T) {
	t.Parallel()
	suite.Links(t, "election")
}
