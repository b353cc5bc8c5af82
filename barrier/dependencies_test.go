package barrier_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestBarrierLinksNoTestDependencies(t *testing.T) {
	t.Parallel()
	suite.Links(t, "barrier")
}
