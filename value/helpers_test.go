package value_test

import (
	"context"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

func patient(t testing.TB) context.Context { return suite.Within(t, suite.Limit) }
