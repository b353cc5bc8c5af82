package doublebarrier_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestDoubleBarrierLinksNoTestDependencies(t *testing.T) {
	t.Parallel()
	suite.Links(t, "doublebarrier")
}
