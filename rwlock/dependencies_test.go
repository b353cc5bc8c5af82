package rwlock_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestRecipesLinkNoTestDependencies(t *testing.T) {
	t.Parallel()
	suite.Links(t, "rwlock")
}
