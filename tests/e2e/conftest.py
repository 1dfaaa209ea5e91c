from __future__ import annotations

import pytest
from support.certificates import Authority, make


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make(tmp_path_factory.mktemp("certificates"))
